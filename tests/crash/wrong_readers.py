"""Readers of the log: two that are right, and those that are known to be wrong.

A reader is a way to *look* (what is asked of the server, in which order) and a *memory* (what it
concludes). The memory of a wrong reader is a right one's; only its look differs, in the way its
docstring names. All suffer the same delays: between two statements, and inside a statement between
its snapshot and what it reads. Any process may be scheduled away there; here it happens often.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from random import Random
from typing import Any, NamedTuple, Protocol
from uuid import UUID

import asyncpg

from tests.support.writers import pause

DELAYED = 0.1
LONGEST_DELAY = 0.03
"""Seldom and long finds more than often and short: a look that was delayed is soon followed by one
that draws the wrong conclusion from it."""

# A scalar subquery that mentions delay.over runs after the delay, in the statement's old snapshot.
# pg_locks has no snapshot: it shows the locks of the moment it is read.
_DELAY = "WITH delay AS MATERIALIZED (SELECT pg_sleep($1)::text = '' AS over)"
_CEILING = "(SELECT coalesce(max(id), 0) FROM outbox WHERE delay.over)"
_HOLDERS = """(
    SELECT coalesce(array_agg(DISTINCT virtualtransaction), '{}') FROM pg_locks
    WHERE delay.over AND locktype = 'relation' AND relation = 'outbox'::regclass
    AND mode = 'RowExclusiveLock' AND granted
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
)"""
_HOLDERS_ANYWHERE = _HOLDERS.partition("AND database")[0] + ")"
_COLUMNS = "id, event_id, key, (payload->>'ver')::int AS ver, created_at"


class Row(NamedTuple):
    id: int
    event_id: UUID
    key: str
    ver: int
    created_at: datetime


class Look(NamedTuple):
    ceiling: int
    holders: frozenset[str]
    rows: Sequence[Row]
    """By id: those above the cursor and up to the ceiling, and those of the holes."""


class Memory(Protocol):
    cursor: int

    @property
    def looked_for(self) -> Sequence[int]:
        """Holes at or below the cursor."""

    def learn(self, look: Look) -> list[Row]:
        """Take note of *look*; what is to be delivered now."""


@dataclass
class Eager:
    """Delivers what is visible; remembers the holes with those who may still fill them."""

    cursor: int = 0
    holes: dict[int, frozenset[str]] = field(default_factory=dict)

    @property
    def looked_for(self) -> Sequence[int]:
        return list(self.holes)

    def learn(self, look: Look) -> list[Row]:
        new = range(self.cursor + 1, look.ceiling + 1)
        holes = self.holes | dict.fromkeys(new, look.holders)
        for row in look.rows:
            del holes[row.id]
        # A hole whose holders had all ended before its row was looked for, in vain, is final.
        left = {hole: holders & look.holders for hole, holders in holes.items()}
        self.holes = {hole: holders for hole, holders in left.items() if holders}
        self.cursor = max(self.cursor, look.ceiling)
        return list(look.rows)


@dataclass
class Strict:
    """Delivers in the order of ids; at a hole it waits until that is final, however long."""

    cursor: int = 0
    holes: dict[int, frozenset[str]] = field(default_factory=dict)
    looked_for: Sequence[int] = ()

    def learn(self, look: Look) -> list[Row]:
        rows = {row.id: row for row in look.rows}
        missing = [i for i in range(self.cursor + 1, look.ceiling + 1) if i not in rows]
        left = {hole: self.holes.get(hole, look.holders) & look.holders for hole in missing}
        self.holes = {hole: holders for hole, holders in left.items() if holders}
        self.cursor = max(self.cursor, min(self.holes, default=look.ceiling + 1) - 1)
        return [row for row in look.rows if row.id <= self.cursor]


class Log:
    """The statements of the readers, each with its delays."""

    def __init__(self, connection: Any, random: Random) -> None:
        self._connection = connection
        self._random = random

    def delay(self) -> float:
        long = self._random.random() < DELAYED
        return self._random.random() * LONGEST_DELAY if long else 0.0

    async def ceiling(self) -> int:
        await pause(self.delay())
        query = f"{_DELAY} SELECT {_CEILING} FROM delay"
        return int(await self._connection.fetchval(query, self.delay()))

    async def holders(self, sql: str = _HOLDERS) -> frozenset[str]:
        await pause(self.delay())
        query = f"{_DELAY} SELECT {sql} FROM delay"
        return frozenset(await self._connection.fetchval(query, self.delay()))

    async def rows(self, memory: Memory, ceiling: int) -> list[Row]:
        """One statement for the new ones and the holes.

        The holes read before the new rows would be read too early: the second event of a key could
        be among the new rows while the first was not visible yet when its hole was looked at.
        """
        await pause(self.delay())
        query = f"""{_DELAY}
            SELECT {_COLUMNS} FROM delay, outbox
            WHERE delay.over AND (id > $2 AND id <= $3 OR id = ANY ($4)) ORDER BY id"""
        found = await self._connection.fetch(
            query, self.delay(), memory.cursor, ceiling, memory.looked_for
        )
        return [Row(*each) for each in found]

    async def all_at_once(self, memory: Memory) -> Look:
        await pause(self.delay())
        query = f"""{_DELAY},
            facts AS MATERIALIZED (
                SELECT {_CEILING} AS ceiling, {_HOLDERS} AS holders FROM delay
            )
            SELECT ceiling, holders, {_COLUMNS} FROM facts
            LEFT JOIN outbox ON id > $2 AND id <= ceiling OR id = ANY ($3) ORDER BY id"""
        found = await self._connection.fetch(query, self.delay(), memory.cursor, memory.looked_for)
        rows = [Row(*each[2:]) for each in found if each["id"] is not None]
        return Look(found[0]["ceiling"], frozenset(found[0]["holders"]), rows)

    async def finished(self, after: tuple[int, int]) -> list[Any]:
        """Rows of transactions older than any that is open, in the order (xid, id)."""
        await pause(self.delay())
        xid = "xmin::text::bigint"
        oldest = "pg_snapshot_xmin(pg_current_snapshot())::text::bigint"
        query = f"""{_DELAY}
            SELECT {xid} AS xid, {_COLUMNS} FROM delay, outbox
            WHERE delay.over AND ({xid}, id) > ($2, $3) AND {xid} < {oldest} ORDER BY 1, 2"""
        found: list[Any] = await self._connection.fetch(query, self.delay(), *after)
        return found

    async def deliver(self, listener: str, rows: Sequence[Row]) -> None:
        await self._connection.executemany(
            "INSERT INTO seen (listener, position, event_id, key, ver, created_at)"
            " VALUES ($1, $2, $3, $4, $5, $6)",
            [(listener, *row) for row in rows],
        )


async def look_in_order(log: Log, memory: Memory) -> Look:
    """The right way: ceiling, holders, rows, each its own statement."""
    ceiling = await log.ceiling()
    holders = await log.holders()
    return Look(ceiling, holders, await log.rows(memory, ceiling))


async def look_without_grace(log: Log, memory: Memory) -> Look:
    """``id > cursor``, and nobody is waited for.

    Wrong: ids are drawn at INSERT and appear at COMMIT. An id below the cursor that appears later
    is never looked for.
    """
    ceiling = await log.ceiling()
    return Look(ceiling, frozenset(), await log.rows(memory, ceiling))


async def look_at_holders_first(log: Log, memory: Memory) -> Look:
    """Two steps swapped: holders, then ceiling.

    Wrong: a writer that comes in between takes its lock too late to be found, and yet draws an id
    below the ceiling if another one draws and commits after it. Its hole is thought final when
    those who were found have ended, while it is open.
    """
    holders = await log.holders()
    ceiling = await log.ceiling()
    return Look(ceiling, holders, await log.rows(memory, ceiling))


async def look_at_once(log: Log, memory: Memory) -> Look:
    """One statement for ceiling, holders and rows.

    Wrong: the rows are those of the snapshot, the locks those of a moment later. A writer that
    ends in between is in neither: its lock is gone, its row not there yet, its hole looks final.
    """
    return await log.all_at_once(memory)


async def look_in_any_database(log: Log, memory: Memory) -> Look:
    """The holders of a table with this oid in whatever database.

    Wrong: nothing is lost, but a copy of the database on the same server has the same oids, and
    its writers delay ours.
    """
    ceiling = await log.ceiling()
    holders = await log.holders(_HOLDERS_ANYWHERE)
    return Look(ceiling, holders, await log.rows(memory, ceiling))


Reader = Callable[[Log, str, asyncio.Event], Awaitable[None]]


def reader(look: Callable[[Log, Memory], Awaitable[Look]], memory: type[Eager | Strict]) -> Reader:
    async def read(log: Log, listener: str, over: asyncio.Event) -> None:
        known = memory()
        async for _ in _until_nothing_can_come(over):
            await log.deliver(listener, known.learn(await look(log, known)))

    return read


async def behind_xmin(log: Log, listener: str, over: asyncio.Event) -> None:
    """What most libraries do: the order (xid, id), below the oldest transaction that is open.

    Wrong: nothing is lost, but an xid tells when a transaction began to write, not when it changed
    an aggregate, so the versions of one are turned round; and any open transaction anywhere on the
    server stops everybody.
    """
    cursor = (0, 0)
    async for _ in _until_nothing_can_come(over):
        rows = await log.finished(cursor)
        await log.deliver(listener, [Row(*row[1:]) for row in rows])
        if rows:
            cursor = (rows[-1]["xid"], rows[-1]["id"])


async def _until_nothing_can_come(over: asyncio.Event) -> Any:
    """Once more after it is over: that look finds no holder, so all its holes are final."""
    while not over.is_set():
        yield
    yield


async def run(reader: Reader, dsn: str, *, listener: str, seed: int, over: asyncio.Event) -> None:
    connection = await asyncpg.connect(dsn)
    await reader(Log(connection, Random(seed)), listener, over)
    await connection.close()


reference_eager = reader(look_in_order, Eager)
reference_strict = reader(look_in_order, Strict)
