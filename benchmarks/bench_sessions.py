"""What does the outbox cost a transaction?

Two questions, each for psycopg (sync) and asyncpg (async):

- One event per transaction, against the INSERT into the same table that a careful person writes by
  hand in the same session (Core, no RETURNING, uuid and JSON made by the program). Goal: 1.05.
- No event at all, against a plain session of SQLAlchemy. Goal: 1.02.

Each transaction inserts one entity and commits, durably. The notifier is on: what its thread takes
from the program while it sends is part of the cost.

``python -m benchmarks.bench_sessions``
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from sqlalchemy import Engine, create_engine, insert
from sqlalchemy.ext.asyncio import AsyncEngine, async_sessionmaker, create_async_engine
from sqlalchemy.orm import sessionmaker

from sa_outbox import Outbox
from sa_outbox.schema import migrate

from .alone import main
from .measure import Async, Sync, Times, compare, compare_async, costs
from .report import Goal, Report
from .shop import PAYLOAD, Base, Order

if TYPE_CHECKING:
    from sa_outbox.embedded import EmbeddedPostgres

ROUNDS = 3_000
KINDS = (("one-event", "one event per transaction", 1.05), ("no-event", "no event", 1.02))
"""Key, title, and the goal for every contestant but the first."""


def sync_contestants(engine: Engine) -> tuple[dict[str, Sync], dict[str, Sync]]:
    outbox = Outbox()
    by_hand = insert(outbox.tables.outbox).inline()
    plain = sessionmaker(engine)
    with_outbox = outbox.sessionmaker(engine)
    installed = outbox.install(sessionmaker(engine))

    def core_insert() -> None:
        with plain.begin() as session:
            session.add(Order(customer="c"))
            values = {"event_id": uuid.uuid4(), "event_type": "order.placed", "payload": PAYLOAD}
            session.execute(by_hand, values)

    def add_event() -> None:
        with with_outbox.begin() as session:
            session.add(Order(customer="c"))
            session.add_event("order.placed", PAYLOAD)

    def plain_session() -> None:
        with plain.begin() as session:
            session.add(Order(customer="c"))

    def outbox_session() -> None:
        with with_outbox.begin() as session:
            session.add(Order(customer="c"))

    def installed_session() -> None:
        with installed.begin() as session:
            session.add(Order(customer="c"))

    return (
        {"INSERT by hand": core_insert, "session.add_event": add_event},
        {
            "plain session": plain_session,
            "outbox.sessionmaker, no event": outbox_session,
            "outbox.install, no event": installed_session,
        },
    )


def async_contestants(engine: AsyncEngine) -> tuple[dict[str, Async], dict[str, Async]]:
    outbox = Outbox()
    by_hand = insert(outbox.tables.outbox).inline()
    plain = async_sessionmaker(engine)
    with_outbox = outbox.async_sessionmaker(engine)
    installed = outbox.install(async_sessionmaker(engine))

    async def core_insert() -> None:
        async with plain.begin() as session:
            session.add(Order(customer="c"))
            values = {"event_id": uuid.uuid4(), "event_type": "order.placed", "payload": PAYLOAD}
            await session.execute(by_hand, values)

    async def add_event() -> None:
        async with with_outbox.begin() as session:
            session.add(Order(customer="c"))
            session.add_event("order.placed", PAYLOAD)

    async def plain_session() -> None:
        async with plain.begin() as session:
            session.add(Order(customer="c"))

    async def outbox_session() -> None:
        async with with_outbox.begin() as session:
            session.add(Order(customer="c"))

    async def installed_session() -> None:
        async with installed.begin() as session:
            session.add(Order(customer="c"))

    return (
        {"INSERT by hand": core_insert, "session.add_event": add_event},
        {
            "plain session": plain_session,
            "outbox.async_sessionmaker, no event": outbox_session,
            "outbox.install, no event": installed_session,
        },
    )


async def run(server: EmbeddedPostgres, report: Report) -> None:
    engine = create_engine(server.url("psycopg"))
    with engine.begin() as connection:
        migrate(connection, Outbox().settings.names)
        Base.metadata.create_all(connection)
    for kind, contestants in zip(KINDS, sync_contestants(engine), strict=True):
        times = compare(contestants, rounds=ROUNDS)
        add(report, kind, "psycopg", times)
    engine.dispose()
    async_engine = create_async_engine(server.url("asyncpg"))
    for kind, async_ones in zip(KINDS, async_contestants(async_engine), strict=True):
        add(report, kind, "asyncpg", await compare_async(async_ones, rounds=ROUNDS))
    await async_engine.dispose()


def add(report: Report, kind: tuple[str, str, float], driver: str, times: Times) -> None:
    key, title, goal = kind
    goals = [Goal(row=name, column="ratio", at_most=goal) for name in list(times)[1:]]
    report.add(costs(f"{key}-{driver}", f"{title}, {driver}", times, goals=goals))


if __name__ == "__main__":
    main("bench_sessions", run)
