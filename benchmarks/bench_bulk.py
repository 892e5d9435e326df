"""What do many events in one transaction cost, against INSERTs by hand?

- 10,000 events, against asyncpg without SQLAlchemy: ``executemany``, and one INSERT from arrays
  (``unnest``), which is the fastest statement there is. By hand there is an id, a name, a key and a
  payload made with ``json``: nothing is checked, no event object is made, and nothing can be read
  back from the session. Goal: at least 0.85 of ``executemany``, which is what asyncpg has for many
  rows. Against ``unnest`` there is a ratio without a goal.
- 100 events, against the Core INSERT of 100 rows that a careful person writes in the same session.
  Goal: at most 0.8 of its time.

``python -m benchmarks.bench_bulk``
"""

from __future__ import annotations

import json
import time
import uuid
from typing import TYPE_CHECKING, Any

import asyncpg
from sqlalchemy import insert
from sqlalchemy.ext.asyncio import AsyncEngine, async_sessionmaker, create_async_engine

from sa_outbox import Outbox
from sa_outbox.schema import migrate

from .alone import main
from .measure import Async, Contestant, compare_async, costs, speeds, take_turns
from .report import Goal, Report
from .shop import PAYLOAD

if TYPE_CHECKING:
    from sa_outbox.embedded import EmbeddedPostgres

MANY, ROUNDS = 10_000, 12
SOME, TRANSACTIONS = 100, 300
KEYS = [f"customer-{number % 1000}" for number in range(MANY)]
ONE_BY_ONE = "INSERT INTO outbox (event_id, event_type, key, payload) VALUES ($1, $2, $3, $4)"
FROM_ARRAYS = """
    INSERT INTO outbox (event_id, event_type, key, payload)
    SELECT * FROM unnest($1::uuid[], $2::text[], $3::text[], $4::jsonb[])
"""


def many_at_once(
    outbox: Outbox, engine: AsyncEngine, plain: asyncpg.Connection
) -> dict[str, Contestant]:
    sessions = outbox.async_sessionmaker(engine)

    async def with_executemany() -> float:
        began = time.perf_counter()
        async with plain.transaction():
            rows = [(uuid.uuid4(), "order.placed", key, json.dumps(PAYLOAD)) for key in KEYS]
            await plain.executemany(ONE_BY_ONE, rows)
        return time.perf_counter() - began

    async def with_arrays() -> float:
        began = time.perf_counter()
        async with plain.transaction():
            await plain.execute(
                FROM_ARRAYS,
                [uuid.uuid4() for _ in KEYS],
                ["order.placed"] * MANY,
                KEYS,
                [json.dumps(PAYLOAD) for _ in KEYS],
            )
        return time.perf_counter() - began

    async def add_event() -> float:
        began = time.perf_counter()
        async with sessions.begin() as session:
            for key in KEYS:
                session.add_event("order.placed", PAYLOAD, key=key)
        return time.perf_counter() - began

    return {
        "asyncpg by hand, executemany": with_executemany,
        "asyncpg by hand, INSERT from unnest": with_arrays,
        "session.add_event": add_event,
    }


def some_at_once(outbox: Outbox, engine: AsyncEngine) -> dict[str, Async]:
    by_hand = insert(outbox.tables.outbox).inline()
    plain, with_outbox = async_sessionmaker(engine), outbox.async_sessionmaker(engine)

    async def core_insert() -> None:
        async with plain.begin() as session:
            rows: list[dict[str, Any]] = [
                {
                    "event_id": uuid.uuid4(),
                    "event_type": "order.placed",
                    "key": key,
                    "payload": PAYLOAD,
                }
                for key in KEYS[:SOME]
            ]
            await session.execute(by_hand, rows)

    async def add_event() -> None:
        async with with_outbox.begin() as session:
            for key in KEYS[:SOME]:
                session.add_event("order.placed", PAYLOAD, key=key)

    return {"Core INSERT by hand": core_insert, "session.add_event": add_event}


async def run(server: EmbeddedPostgres, report: Report) -> None:
    outbox = Outbox()
    engine = create_async_engine(server.url("asyncpg"))
    async with engine.begin() as connection:
        await connection.run_sync(migrate, outbox.settings.names)
    plain = await asyncpg.connect(server.url())
    ours = "session.add_event"
    times = await take_turns(many_at_once(outbox, engine, plain), ROUNDS)
    report.add(
        speeds(
            "bulk-10000",
            f"{MANY:,} events in one transaction",
            times,
            MANY,
            goals=[Goal(row=ours, column="ratio", at_least=0.85)],
            beside={"to unnest ratio": "asyncpg by hand, INSERT from unnest"},
        )
    )
    times = await compare_async(some_at_once(outbox, engine), rounds=TRANSACTIONS)
    report.add(
        costs(
            "bulk-100",
            f"{SOME} events in one transaction, asyncpg through SQLAlchemy",
            times,
            goals=[Goal(row=ours, column="ratio", at_most=0.8)],
        )
    )
    await plain.close()
    await engine.dispose()


if __name__ == "__main__":
    main("bench_bulk", run)
