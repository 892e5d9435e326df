"""Writers as a busy program has them, and what goes on around them.

Each writer changes aggregates and writes an event for each change: in transactions of every
isolation level, with pauses at every step, savepoints, rollbacks, two-phase commits and clients
that die. What they leave in the log is the truth that a reader is compared with.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import asyncpg

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine

KEYS = 12
TABLES = f"""
CREATE TABLE agg (key int PRIMARY KEY, ver int NOT NULL);
INSERT INTO agg SELECT key, 0 FROM generate_series(0, {KEYS - 1}) AS key;
CREATE TABLE elsewhere (note text);
"""
"""What writers need beside the outbox: aggregates with a version, and a table of no interest."""

WRITE_ELSEWHERE = "INSERT INTO elsewhere VALUES ('a transaction id, and no lock on the outbox')"
WRITE_EVENT = """
INSERT INTO outbox (event_id, event_type, key, payload)
VALUES (gen_random_uuid(), 'stress.changed', 'elsewhere', '{}')
"""

_ISOLATION = ("READ COMMITTED",) * 6 + ("REPEATABLE READ", "SERIALIZABLE")
_CONFLICT = (asyncpg.SerializationError, asyncpg.DeadlockDetectedError)
_GONE = (asyncpg.PostgresError, asyncpg.InterfaceError, OSError)


@dataclass(frozen=True, kw_only=True)
class Mix:
    """How often a writer does what, as a share of 1; pauses in seconds, each up to the value."""

    other_write_first: float = 0.35
    """Has a transaction id long before its event."""
    savepoint: float = 0.3
    savepoint_rolled_back: float = 0.4
    rollback: float = 0.12
    two_phase: float = 0.05
    killed: float = 0.01
    """The client is gone, in the middle of the transaction or of its COMMIT."""
    pause_after_change: float = 0.2
    longest_pause: float = 0.04
    between: float = 0.03
    """Between two transactions: the pace."""


class Population:
    """*writers* at work on one database, by chance but from *seed*.

    As a real producer does, it wakes consumers after a commit, never after a rollback, and by one
    NOTIFY for many commits.
    """

    def __init__(self, dsn: str, *, seed: int, writers: int = 16, mix: Mix | None = None) -> None:
        self.committed: dict[UUID, datetime] = {}
        """When the commit of an event returned. Events of killed clients are not in it, even
        when their commit arrived: the truth is in the log."""
        self.conflicts = 0
        self.may_begin = asyncio.Event()
        """Cleared by who can't keep up: then no writer begins another transaction."""
        self.may_begin.set()
        self._dsn = dsn
        self._seed = seed
        self._writers = writers
        self._mix = mix or Mix()
        self._wake = asyncio.Event()
        self._ends_at = 0.0

    async def run(self, seconds: float) -> None:
        """Write for so long; return when every transaction has ended and consumers were woken."""
        self._ends_at = time.monotonic() + seconds
        connection = await asyncpg.connect(self._dsn)
        async with alongside(self._notify(connection)):
            numbers = range(self._writers)
            await _together(*(self._write(Random(self._seed * 1000 + n)) for n in numbers))
        await _notify(connection)
        await connection.close()

    async def _notify(self, connection: Any) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            await _notify(connection)
            await pause(0.01)

    async def _write(self, random: Random) -> None:
        connection = await asyncpg.connect(self._dsn)
        while await self._next():
            if random.random() < self._mix.killed:
                await self._die(connection, random)
                connection = await asyncpg.connect(self._dsn)
            else:
                await self._transact(connection, random)
            await pause(random.random() * self._mix.between)
        await connection.close()

    async def _next(self) -> bool:
        """Whether there is time for another transaction, once it may begin."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._ends_at - time.monotonic()):
                await self.may_begin.wait()
        return time.monotonic() < self._ends_at

    async def _transact(self, connection: Any, random: Random) -> None:
        try:
            events = await self._change_aggregates(connection, random)
            ending = random.random()
            if ending < self._mix.rollback:
                await connection.execute("ROLLBACK")
                return
            if ending < self._mix.rollback + self._mix.two_phase:
                await self._commit_in_two_phases(connection, random)
            else:
                await connection.execute("COMMIT")
        except _CONFLICT:
            self.conflicts += 1
            if connection.is_in_transaction():
                await connection.execute("ROLLBACK")
            return
        self.committed.update(dict.fromkeys(events, datetime.now(UTC)))
        self._wake.set()

    async def _change_aggregates(self, connection: Any, random: Random) -> list[UUID]:
        """Begin a transaction and change one aggregate or two; the events that are left of it."""
        mix = self._mix
        await connection.execute(f"BEGIN ISOLATION LEVEL {random.choice(_ISOLATION)}")
        if random.random() < mix.other_write_first:
            await connection.execute(WRITE_ELSEWHERE)
            await self._pause(random)
        events = []
        for _ in range(random.randint(1, 2)):
            in_savepoint = random.random() < mix.savepoint
            if in_savepoint:
                await connection.execute("SAVEPOINT change")
            event_id = await _change(connection, random.randrange(KEYS))
            if random.random() < mix.pause_after_change:
                await self._pause(random)
            if in_savepoint and random.random() < mix.savepoint_rolled_back:
                await connection.execute("ROLLBACK TO SAVEPOINT change")
            else:
                events.append(event_id)
        return events

    async def _commit_in_two_phases(self, connection: Any, random: Random) -> None:
        name = uuid4().hex
        await connection.execute(f"PREPARE TRANSACTION '{name}'")
        await self._pause(random)
        await connection.execute(f"COMMIT PREPARED '{name}'")

    async def _die(self, connection: Any, random: Random) -> None:
        with suppress(*_CONFLICT):
            await self._change_aggregates(connection, random)
            if random.random() < 0.5:
                commit = asyncio.ensure_future(connection.execute("COMMIT"))
                await asyncio.sleep(0)  # it is sent; whether it arrives is open
                connection.terminate()
                with suppress(*_GONE):
                    await commit
        connection.terminate()

    async def _pause(self, random: Random) -> None:
        await pause(random.random() * self._mix.longest_pause)


async def _change(connection: Any, key: int) -> UUID:
    """A new version of the aggregate and the event that says so.

    The aggregate comes first: a second transaction that changes it waits here, before it draws
    an id for its event. That is where the order of a key comes from.
    """
    version = await connection.fetchval(
        "UPDATE agg SET ver = ver + 1 WHERE key = $1 RETURNING ver", key
    )
    event_id = uuid4()
    await connection.execute(
        "INSERT INTO outbox (event_id, event_type, key, payload)"
        " VALUES ($1, 'stress.changed', $2, $3)",
        event_id,
        str(key),
        json.dumps({"key": key, "ver": version}),
    )
    return event_id


OPEN_ELSEWHERE = 4.0
"""Seconds that a transaction elsewhere stays open."""


@asynccontextmanager
async def busy_server(dsn: str, other_dsn: str, *, seed: int) -> AsyncIterator[None]:
    """Meanwhile: a long transaction on another table, one on the outbox of another database (each
    followed by the next, so that there is always one), and server processes that stand still."""
    async with alongside(
        stay_open(dsn, WRITE_ELSEWHERE, seconds=OPEN_ELSEWHERE),
        stay_open(other_dsn, WRITE_EVENT, seconds=OPEN_ELSEWHERE),
        freeze_backends(dsn, seed=seed),
    ):
        yield


async def stay_open(dsn: str, statement: str, *, seconds: float) -> None:
    """Run *statement* in transactions that last *seconds*, one after the other, until cancelled."""
    connection = await asyncpg.connect(dsn)
    try:
        while True:
            async with connection.transaction():
                await connection.execute(statement)
                await pause(seconds)
    finally:
        connection.terminate()


async def freeze_backends(dsn: str, *, seed: int) -> None:
    """Stop server processes of this database for 5 to 60 ms each, until cancelled.

    A busy machine does the same to any process, wherever it is in its work. Without the right to
    send them signals (a server of someone else) nothing is stopped.
    """
    random = Random(seed)
    connection = await asyncpg.connect(dsn)
    try:
        while True:
            pids = await connection.fetch(
                "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
                " AND backend_type = 'client backend' AND pid <> pg_backend_pid() ORDER BY pid"
            )
            if pids:
                await _freeze(random.choice(pids)["pid"], random.uniform(0.005, 0.06))
            await pause(random.uniform(0, 0.05))
    except PermissionError:
        return
    finally:
        connection.terminate()


async def _freeze(pid: int, seconds: float) -> None:
    _send(pid, signal.SIGSTOP)
    try:
        await pause(seconds)
    finally:
        _send(pid, signal.SIGCONT)


def _send(pid: int, what: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, what)


@asynccontextmanager
async def alongside(*surroundings: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run these meanwhile; cancelled at the end. If one of them fails, so does all of it."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(each) for each in surroundings]
        yield
        for task in tasks:
            task.cancel()


async def _together(*work: Coroutine[Any, Any, None]) -> None:
    async with asyncio.TaskGroup() as group:
        for each in work:
            group.create_task(each)


async def _notify(connection: Any) -> None:
    await connection.execute("SELECT pg_notify('outbox', '')")


async def pause(seconds: float) -> None:
    """Part of the scenario: a program that computes, a process that is not scheduled.

    Every pause of the stress tests comes through here, and none waits for an effect.
    """
    await asyncio.sleep(seconds)
