"""What does a handler with a session cost, against sessions by hand?

The handler makes one INSERT. By hand, one transaction per event with an ``AsyncSession`` (for sync
handlers, a ``Session`` with psycopg): the INSERT and the COMMIT, no cursor, no lease, no retry. All
events wait at the start; a contestant begins with the first one and ends when the last one is
committed. A ratio is speed: more is better.

- the defaults (group commit, one task), one transaction per event (``group_commit=False``), eight
  tasks, a queue with eight tasks; and eight clients by hand. Goals: 1.6, 0.9 and 3.0 for eight
  tasks, which are also at least as fast as eight clients by hand;
- handlers that wait for 5 ms before their INSERT: eight tasks against one. Goal: 6;
- the same for sync handlers;
- a server whose commits take 5 ms: does a listener lose that its tasks commit one after the other?

Two rounds with 5,000 events, after a short one that warms up: with more of them, ``make bench``
would take too long. ``--rounds 5`` has more.

``python -m benchmarks.bench_handlers``
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeAlias

from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import (
    AsyncEngine,
    AsyncSession,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import Session, sessionmaker

from sa_outbox import Event, Outbox

from .alone import add_record, measure
from .drains import drained, fill, prepared
from .measure import Contestant, speeds, take_turns
from .report import Goal
from .shop import EFFECT

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from sa_outbox.embedded import EmbeddedPostgres

    from .report import Report

Contestants: TypeAlias = Callable[[int], dict[str, Contestant]]
"""Those of one table, for so many events."""

EVENTS, ROUNDS = 5_000, 2
WAITING_EVENTS, WARM_EVENTS = 300, 200
WAIT_SECONDS = 0.005
EIGHT = "to eight ratio"
"""The speed as a part of that of eight clients by hand."""
LISTENERS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "group_commit=False": {"group_commit": False},
    'order="total"': {"order": "total"},
    "concurrency=8": {"concurrency": 8},
    'order="none", concurrency=8': {"order": "none", "concurrency": 8},
}
WAITING: dict[str, dict[str, Any]] = {
    "waits 5 ms, concurrency=1": {},
    "waits 5 ms, concurrency=8": {"concurrency": 8},
}
SYNC: dict[str, dict[str, Any]] = {
    "sync, defaults": {},
    "sync, group_commit=False": {"group_commit": False},
    "sync, concurrency=8": {"concurrency": 8},
}
SYNC_WAITING: dict[str, dict[str, Any]] = {f"sync, {row}": of for row, of in WAITING.items()}

SLOW_DISK = {"server_settings": {"commit_delay": "5000", "commit_siblings": "0"}}
"""PostgreSQL waits for 5 ms before each flush; commits that come meanwhile share it."""
GOALS: dict[str, dict[str, float]] = {
    "handlers": {"defaults": 1.6, "group_commit=False": 0.9, "concurrency=8": 3.0},
    "handlers-sync": {
        "sync, defaults": 1.6,
        "sync, group_commit=False": 0.9,
        "sync, concurrency=8": 3.0,
    },
    "handlers-wait": {"waits 5 ms, concurrency=8": 6.0},
    "handlers-sync-wait": {"sync, waits 5 ms, concurrency=8": 6.0},
}
AS_EIGHT_CLIENTS = {"handlers": "concurrency=8", "handlers-sync": "sync, concurrency=8"}
"""Which row of a table has at least the speed of eight clients by hand."""


async def handle(_event: Event[Any], session: AsyncSession) -> None:
    await session.execute(EFFECT)


async def wait(_event: Event[Any], session: AsyncSession) -> None:
    await asyncio.sleep(WAIT_SECONDS)
    await session.execute(EFFECT)


def handle_in_thread(_event: Event[Any], session: Session) -> None:
    session.execute(EFFECT)


def wait_in_thread(_event: Event[Any], session: Session) -> None:
    time.sleep(WAIT_SECONDS)
    session.execute(EFFECT)


async def by_hand(engine: AsyncEngine, clients: int, events: int) -> float:
    sessions = async_sessionmaker(engine)
    numbers = iter(range(events))
    began = time.perf_counter()

    async def client() -> None:
        for _ in numbers:
            async with sessions.begin() as session:
                await session.execute(EFFECT)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(clients):
            tasks.create_task(client())
    return time.perf_counter() - began


def by_hand_sync(engine: Engine, clients: int, events: int) -> float:
    sessions = sessionmaker(engine)
    numbers = iter(range(events))

    def client(_number: int) -> None:
        for _ in numbers:
            with sessions.begin() as session:
                session.execute(EFFECT)

    with ThreadPoolExecutor(clients) as threads:
        began = time.perf_counter()
        list(threads.map(client, range(clients)))
        return time.perf_counter() - began


class Field:
    """Everybody who takes part, on one server."""

    def __init__(self, server: EmbeddedPostgres, engine: AsyncEngine) -> None:
        self.engine = engine
        self.sync_engine = create_engine(server.url("psycopg"), pool_size=20)
        url = server.url("asyncpg")
        self.slow_engine = create_async_engine(url, pool_size=20, connect_args=SLOW_DISK)

    def _listeners(
        self,
        handler: Callable[..., Any],
        declared: dict[str, dict[str, Any]],
        engine: AsyncEngine | None = None,
    ) -> dict[str, Contestant]:
        outbox = Outbox()
        for number, options in enumerate(declared.values()):
            outbox.listener(f"listener_{number}", on="order.placed", **options)(handler)

        def contestant(name: str) -> Contestant:
            return lambda: drained(outbox, engine or self.engine, name, self.sync_engine)

        return {row: contestant(f"listener_{number}") for number, row in enumerate(declared)}

    def with_sessions(self, events: int) -> dict[str, Contestant]:
        return {
            "AsyncSession by hand": lambda: by_hand(self.engine, 1, events),
            "eight clients by hand": lambda: by_hand(self.engine, 8, events),
            **self._listeners(handle, LISTENERS),
        }

    def in_threads(self, events: int) -> dict[str, Contestant]:
        def client(clients: int) -> Contestant:
            return lambda: asyncio.to_thread(by_hand_sync, self.sync_engine, clients, events)

        return {
            "Session by hand": client(1),
            "eight clients by hand": client(8),
            **self._listeners(handle_in_thread, SYNC),
        }

    def waiting(self, _events: int) -> dict[str, Contestant]:
        return self._listeners(wait, WAITING)

    def waiting_in_threads(self, _events: int) -> dict[str, Contestant]:
        return self._listeners(wait_in_thread, SYNC_WAITING)

    def on_a_slow_disk(self, events: int) -> dict[str, Contestant]:
        same = {row: LISTENERS[row] for row in ("defaults", "concurrency=8")}
        return {
            "AsyncSession by hand": lambda: by_hand(self.slow_engine, 1, events),
            "eight clients by hand": lambda: by_hand(self.slow_engine, 8, events),
            **self._listeners(handle, same, self.slow_engine),
        }


async def run(
    server: EmbeddedPostgres, report: Report, *, events: int = EVENTS, rounds: int = ROUNDS
) -> None:
    engine = await prepared(server.url("asyncpg"), pool_size=20)
    field = Field(server, engine)
    few = min(events, WAITING_EVENTS)
    waits = "waits 5 ms, then its INSERT"
    tables: tuple[tuple[str, str, Contestants, int], ...] = (
        ("handlers", "a handler with a session and one INSERT", field.with_sessions, events),
        ("handlers-sync", "a sync handler with a session and one INSERT", field.in_threads, events),
        ("handlers-wait", f"a handler that {waits}", field.waiting, few),
        ("handlers-sync-wait", f"a sync handler that {waits}", field.waiting_in_threads, few),
        ("handlers-slow", "commits that take 5 ms, one INSERT", field.on_a_slow_disk, few),
    )
    for key, title, contestants, count in tables:
        warm = min(count, WARM_EVENTS)
        await fill(engine, warm)
        await take_turns(contestants(warm), 1, warm=False)
        await fill(engine, count)
        times = await take_turns(contestants(count), rounds, warm=False)
        beside = {EIGHT: "eight clients by hand"} if key in AS_EIGHT_CLIENTS else {}
        named = f"{title}, {count:,} events"
        report.add(speeds(key, named, times, count, goals=goals(key), beside=beside))
        async with engine.begin() as connection:
            await connection.execute(text("TRUNCATE bench_orders"))
    await engine.dispose()
    await field.slow_engine.dispose()
    field.sync_engine.dispose()


def goals(key: str) -> list[Goal]:
    found = [Goal(row=row, column="ratio", at_least=of) for row, of in GOALS.get(key, {}).items()]
    if key in AS_EIGHT_CLIENTS:
        found.append(Goal(row=AS_EIGHT_CLIENTS[key], column=EIGHT, at_least=1.0))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_handlers")
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    add_record(parser)
    given = parser.parse_args()

    async def sized(server: EmbeddedPostgres, report: Report) -> None:
        await run(server, report, events=given.events, rounds=given.rounds)

    measure("bench_handlers", sized, record=given.record)


if __name__ == "__main__":
    main()
