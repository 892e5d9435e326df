"""What does a handler with a session cost, against sessions by hand?

The handler makes one INSERT. By hand, one transaction per event with an ``AsyncSession`` (for sync
handlers, a ``Session`` with psycopg): the INSERT and the COMMIT, no cursor, no lease, no retry. All
events wait at the start; a contestant begins with the first one and ends when the last one is
committed. A ratio is speed: more is better.

- the defaults (group commit, one task), one transaction per event (``group_commit=False``), eight
  tasks, a queue with eight tasks; and eight clients by hand;
- handlers that wait for 5 ms before their INSERT: eight tasks against one;
- the same for sync handlers;
- a server whose commits take 5 ms: does a listener lose that its tasks commit one after the other?

``python -m benchmarks.bench_handlers``
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from sqlalchemy import create_engine, insert, text
from sqlalchemy.ext.asyncio import (
    AsyncEngine,
    AsyncSession,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import Session, sessionmaker

from sa_outbox import Event, Outbox

from .alone import main
from .drains import drained, fill, prepared
from .measure import Contestant, speeds, take_turns
from .report import Goal
from .shop import Order

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from sa_outbox.embedded import EmbeddedPostgres

    from .report import Report

EVENTS, WAITING_EVENTS, ROUNDS = 1_000, 300, 3
WAIT_SECONDS = 0.005
EFFECT = insert(Order).values(customer="c")
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

SLOW_DISK = {"server_settings": {"commit_delay": "5000", "commit_siblings": "0"}}
"""PostgreSQL waits for 5 ms before each flush; commits that come meanwhile share it."""
GOALS = {
    "defaults": 1.6,
    "group_commit=False": 0.9,
    "concurrency=8": 3.0,
    "sync, defaults": 1.6,
    "sync, group_commit=False": 0.9,
    "sync, concurrency=8": 3.0,
    "waits 5 ms, concurrency=8": 6.0,
}


def declare() -> Outbox:
    outbox = Outbox()

    async def handle(_event: Event[Any], session: AsyncSession) -> None:
        await session.execute(EFFECT)

    async def wait(_event: Event[Any], session: AsyncSession) -> None:
        await asyncio.sleep(WAIT_SECONDS)
        await session.execute(EFFECT)

    def handle_in_thread(_event: Event[Any], session: Session) -> None:
        session.execute(EFFECT)

    kinds: tuple[tuple[Any, dict[str, dict[str, Any]]], ...] = (
        (handle, LISTENERS),
        (wait, WAITING),
        (handle_in_thread, SYNC),
    )
    for handler, declared in kinds:
        for number, options in enumerate(declared.values()):
            outbox.listener(f"{handler.__name__}_{number}", on="order.placed", **options)(handler)
    return outbox


async def by_hand(engine: AsyncEngine, clients: int, events: int = EVENTS) -> float:
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


def by_hand_sync(engine: Engine) -> float:
    sessions = sessionmaker(engine)
    began = time.perf_counter()
    for _ in range(EVENTS):
        with sessions.begin() as session:
            session.execute(EFFECT)
    return time.perf_counter() - began


async def run(server: EmbeddedPostgres, report: Report) -> None:
    engine = await prepared(server.url("asyncpg"), pool_size=20)
    sync_engine = create_engine(server.url("psycopg"), pool_size=20)
    outbox = declare()

    def listener(kind: str, number: int) -> Contestant:
        name = f"{kind}_{number}"
        return lambda: drained(outbox, engine, name, sync_engine)

    contestants: dict[str, Contestant] = {
        "AsyncSession by hand": lambda: by_hand(engine, 1),
        "eight clients by hand": lambda: by_hand(engine, 8),
    }
    contestants |= {name: listener("handle", n) for n, name in enumerate(LISTENERS)}
    in_threads: dict[str, Contestant] = {
        "Session by hand": lambda: asyncio.to_thread(by_hand_sync, sync_engine)
    }
    in_threads |= {name: listener("handle_in_thread", n) for n, name in enumerate(SYNC)}
    waiting = {name: listener("wait", n) for n, name in enumerate(WAITING)}
    slow = create_async_engine(server.url("asyncpg"), pool_size=20, connect_args=SLOW_DISK)
    on_a_slow_disk: dict[str, Contestant] = {
        "AsyncSession by hand": lambda: by_hand(slow, 1, WAITING_EVENTS),
        "eight clients by hand": lambda: by_hand(slow, 8, WAITING_EVENTS),
        "defaults": lambda: drained(outbox, slow, "handle_0", sync_engine),
        "concurrency=8": lambda: drained(outbox, slow, "handle_3", sync_engine),
    }
    for key, title, of_them, events in (
        ("handlers", "a handler with a session and one INSERT", contestants, EVENTS),
        ("handlers-sync", "a sync handler with a session and one INSERT", in_threads, EVENTS),
        ("handlers-wait", "a handler that waits 5 ms, then its INSERT", waiting, WAITING_EVENTS),
        ("handlers-slow", "commits that take 5 ms, one INSERT", on_a_slow_disk, WAITING_EVENTS),
    ):
        await fill(engine, events)
        times = await take_turns(of_them, ROUNDS)
        goals = [
            Goal(row=row, column="ratio", at_least=least)
            for row, least in GOALS.items()
            if row in of_them and of_them is not on_a_slow_disk
        ]
        report.add(speeds(key, f"{title}, {events:,} events", times, events, goals=goals))
        async with engine.begin() as connection:
            await connection.execute(text("TRUNCATE bench_orders"))
    await engine.dispose()
    await slow.dispose()
    sync_engine.dispose()


if __name__ == "__main__":
    main("bench_handlers", run)
