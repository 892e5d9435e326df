"""What does delivering cost, against a cursor that a careful person writes by hand?

Two questions, each answered side by side in one run:

- A backlog and a handler that reads one field of its payload, against an asyncpg cursor: the same
  columns read in batches of 500, the same ``Event`` for the handler, all of it decoded, one UPDATE
  of a cursor row per batch. That cursor loses events when commits overtake each other, has no
  lease, no time limit and no retry; it is what there is to lose. Goal: at least 0.6 of its speed.
- From the return of a commit to the start of the handler, in two processes, on an idle system, one
  event at a time: of a listener with order="key", and of a queue. Goal: medians below 2 and 3 ms.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from sa_outbox import Event, Outbox
from sa_outbox.consumer import Consumer
from sa_outbox.event.codec import decode
from sa_outbox.schema import migrate

from .shop import PAYLOAD, Base

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from sa_outbox.embedded import EmbeddedPostgres

BACKLOG, ROUNDS = 50_000, 15
LATENCIES = 300
BATCH = 500
READ = """
    SELECT id, event_id, event_type, key, tenant, payload::text, headers::text,
           extract(epoch FROM run_at)::float8, priority, extract(epoch FROM created_at)::float8
    FROM outbox WHERE id > $1 ORDER BY id LIMIT $2
"""
WRITE = """
    INSERT INTO outbox (event_id, event_type, key, payload)
    SELECT gen_random_uuid(), 'order.placed', 'customer-' || n % 1000, CAST(:payload AS jsonb)
    FROM generate_series(1, :events) n
"""

Contestant = Callable[[], Awaitable[float]]


async def handler(event: Event[Any]) -> None:
    event.payload["order_id"]  # what is not read is not decoded


async def cursor_by_hand(dsn: str, upper: int) -> float:
    """Seconds for the whole log."""
    connection = await asyncpg.connect(dsn)
    await connection.execute("UPDATE by_hand SET position = 0")
    began = time.perf_counter()
    position = 0
    while position < upper:
        for row in await connection.fetch(READ, position, BATCH):
            headers = decode(row[6])
            event = Event(
                row[2],
                decode(row[5]),
                event_id=row[1],
                key=row[3],
                tenant=row[4],
                headers=headers,
                run_at=None if row[7] is None else datetime.fromtimestamp(row[7], UTC),
                priority=row[8],
                position=row[0],
                created_at=datetime.fromtimestamp(row[9], UTC),
            )
            await handler(event)
            position = row[0]
        await connection.execute("UPDATE by_hand SET position = $1", position)
    taken = time.perf_counter() - began
    await connection.close()
    return taken


async def drained(
    outbox: Outbox, engine: AsyncEngine, listener: str, sync_engine: Engine | None = None
) -> float:
    """Seconds from the first read to the last settled event, for one listener from the beginning.

    Not the start of the consumer: a cursor by hand has none.
    """
    async with engine.begin() as connection:
        await connection.execute(text("DELETE FROM outbox_listeners"))
    began = 0.0

    def observe(observation: object) -> None:
        nonlocal began
        if not began and type(observation).__name__ in ("LeaseClaimed", "RangeTaken"):
            began = time.perf_counter()

    consumer = Consumer(
        outbox, engine, listeners=[listener], sync_engine=sync_engine, observers=[observe]
    )
    ended = 0.0
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(consumer.run())
        await asyncio.sleep(0)
        while not began:
            await asyncio.sleep(0.001)
        consumer.observers.remove(observe)
        await consumer.drain()
        ended = time.perf_counter()
        consumer.stop()
        await running
    return ended - began


async def take_turns(contestants: dict[str, Contestant], rounds: int) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in contestants}
    names = list(contestants)
    for number in range(rounds + 1):  # the first fills the caches
        random.shuffle(names)
        for name in names:
            gc.collect()
            taken = await contestants[name]()
            if number:
                times[name].append(taken)
    return times


def report(title: str, times: dict[str, list[float]], events: int) -> dict[str, float]:
    """Events per second, and the speed as a part of the first contestant's."""
    print(f"\n{title}")
    first = next(iter(times.values()))
    ratios = {}
    for name, taken in times.items():
        ratios[name] = statistics.median(its / mine for mine, its in zip(taken, first, strict=True))
        rate = events / statistics.median(taken)
        print(f"  {name:<40} {rate:11,.0f} events/s {ratios[name]:8.3f}")
    return ratios


async def backlog(server: EmbeddedPostgres, engine: AsyncEngine, rounds: int) -> None:
    outbox = Outbox()
    declared: dict[str, dict[str, Any]] = {
        "key": {},
        "total": {"order": "total"},
        "key_8": {"concurrency": 8},
    }
    for name, options in declared.items():
        outbox.listener(name, on="order.placed", **options)(handler)
    dsn = server.url()
    contestants: dict[str, Contestant] = {
        "asyncpg cursor by hand": lambda: cursor_by_hand(dsn, BACKLOG),
        'listener, order="key"': lambda: drained(outbox, engine, "key"),
        'listener, order="total"': lambda: drained(outbox, engine, "total"),
        'listener, order="key", concurrency=8': lambda: drained(outbox, engine, "key_8"),
    }
    await fill(engine, BACKLOG)
    title = f"a backlog of {BACKLOG:,} events, a handler that reads one field"
    report(title, await take_turns(contestants, rounds), BACKLOG)


async def fill(engine: AsyncEngine, events: int) -> None:
    payload = json.dumps(PAYLOAD)
    async with engine.begin() as connection:
        await connection.execute(text("TRUNCATE outbox RESTART IDENTITY"))
        await connection.execute(text(WRITE), {"payload": payload, "events": events})
    async with engine.connect() as connection:
        bare = await connection.execution_options(isolation_level="AUTOCOMMIT")
        await bare.execute(text("VACUUM ANALYZE outbox"))


async def latency(server: EmbeddedPostgres, order: str) -> None:
    """Producer and consumer are processes, as in production; both read one clock, which counts
    for the whole system."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "began.json"
        environment = os.environ | {
            "SA_OUTBOX_DATABASE_URL": server.url(),
            "BENCH_EVENTS": str(LATENCIES),
            "BENCH_RESULT": str(result),
            "BENCH_ORDER": order,
        }
        consumer = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "sa_outbox.consume", "benchmarks.latency_app:outbox"),
            env=environment,
            stdout=asyncio.subprocess.PIPE,
        )
        assert consumer.stdout is not None
        while b"listening" not in await consumer.stdout.readline():
            pass
        producer = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "benchmarks.producer", server.url("asyncpg"), str(LATENCIES)),
            stdout=asyncio.subprocess.PIPE,
        )
        said, _ = await producer.communicate()
        while not result.exists():
            await asyncio.sleep(0.05)
        consumer.terminate()
        await consumer.wait()
        began = json.loads(result.read_text())
    committed = json.loads(said)
    waits = [1000 * (seen - done) for seen, done in zip(began, committed, strict=True)]
    cuts = statistics.quantiles(waits, n=100)
    median = statistics.median(waits)
    print(
        f'  order="{order}": median {median:.2f} ms, p90 {cuts[89]:.2f} ms, p99 {cuts[98]:.2f} ms'
    )


async def run(server: EmbeddedPostgres, rounds: int = ROUNDS) -> None:
    engine = create_async_engine(server.url("asyncpg"))
    async with engine.begin() as connection:
        await connection.run_sync(migrate, Outbox().settings.names)
        await connection.run_sync(Base.metadata.create_all)
        await connection.execute(text("CREATE TABLE by_hand AS SELECT CAST(0 AS bigint) position"))
    print(f"\nfrom the return of a commit to the handler, {LATENCIES} events, one at a time")
    for order in ("key", "none"):
        await latency(server, order)
    await backlog(server, engine, rounds)
    await engine.dispose()
