"""What do writers notice of retention, and does the log stay as small as it should?

A steady load: one writer adds batches of events at a given rate, others commit transactions with
one event each, whose time is taken. A consumer in a process of its own passes the events on to a
listener that does nothing. Another process does maintenance rounds, back to back, in every second
phase of the run, and rests in the others; a phase is as long as a partition, so that in each phase
with maintenance two are made and two are dropped. Reported are the times of both kinds of phases,
and the size of the log with its indexes at the end of each. Goal: the 99th percentile at most 1.2
of that without maintenance, and a size that does not grow.

``python -m benchmarks.bench_retention --events 10000000`` is the long one.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import statistics
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import asyncpg
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import create_async_engine

from sa_outbox import Event, Outbox
from sa_outbox.consumer import Consumer, ConsumerSettings
from sa_outbox.consumer.connection.connections import Connections
from sa_outbox.consumer.connection.engines import engines
from sa_outbox.consumer.upkeep.round import MaintenanceRound
from sa_outbox.schema import migrate

from .alone import add_record, measure
from .report import Goal, Report, Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sa_outbox.embedded import EmbeddedPostgres
    from sa_outbox.observe import Observation

EVENTS, RATE, WRITERS, AT_ONCE = 200_000, 8_000, 2, 200
PHASES = 8
KEPT = timedelta(seconds=1)
FILL = """
    INSERT INTO outbox (event_id, event_type, key, payload)
    SELECT gen_random_uuid(), 'order.placed', 'customer-' || n, '{"order": 1, "total": "12.50"}'
    FROM generate_series(1, $1) n
"""
SIZE = """
    SELECT sum(pg_total_relation_size(inhrelid))::bigint, count(*) FROM pg_inherits
    WHERE inhparent = 'outbox'::regclass
"""
LAG = """
    SELECT (SELECT last_value FROM outbox_id_seq) - min(last_processed_id) FROM outbox_listeners
"""


def make_outbox() -> Outbox:
    outbox = Outbox()

    @outbox.listener("cheap", on="*", batch_size=1000)
    async def cheap(events: Sequence[Event[Any]]) -> None:
        pass

    return outbox


def consume(url: str) -> None:
    """A process: delivers, and does no maintenance."""
    settings = ConsumerSettings(maintenance_interval=timedelta(days=1))
    asyncio.run(Consumer(make_outbox(), url, settings=settings).run())


def keep(url: str, allowed: Any, counts: Any) -> None:
    """A process: one maintenance round after the other, while it is allowed to."""
    asyncio.run(_keep(url, allowed, counts))


async def _keep(url: str, allowed: Any, counts: Any) -> None:
    names = {"PartitionMade": 0, "PartitionDropped": 1, "CatchAllEmptied": 2, "RetentionWaits": 3}

    def emit(observation: Observation) -> None:
        if (at := names.get(type(observation).__name__)) is not None:
            counts[at] += 1

    outbox = make_outbox()
    upkeep = MaintenanceRound(outbox.tables, ConsumerSettings(retention=KEPT), emit)
    connections = Connections(
        engines(url, None, ()).connect, most=1, timeout=30, connecting=5, patience=30
    )
    while True:
        if allowed.is_set():
            async with connections.connection() as connection:
                await upkeep.run(connection)
        await asyncio.sleep(0.2)


class Load:
    """What is written, and how long it took."""

    def __init__(self, server: EmbeddedPostgres, rate: float) -> None:
        self._server = server
        self._rate = rate
        self.written = 0
        self.times: dict[bool, list[float]] = {True: [], False: []}
        self.maintained = False

    async def fill(self) -> None:
        connection = await asyncpg.connect(self._server.url())
        began, here = time.perf_counter(), 0
        while True:
            await connection.execute(FILL, AT_ONCE)
            self.written += AT_ONCE
            here += AT_ONCE
            await asyncio.sleep(max(0.0, began + here / self._rate - time.perf_counter()))

    async def commit_one_by_one(self) -> None:
        engine = create_async_engine(self._server.url("asyncpg"))
        sessions = make_outbox().async_sessionmaker(engine)
        while True:
            maintained = self.maintained
            began = time.perf_counter()
            async with sessions.begin() as session:
                session.add_event("order.placed", {"order": 1, "total": "12.50"})
            self.times[maintained].append(time.perf_counter() - began)
            self.written += 1
            await asyncio.sleep(0.002)


def prepare(server: EmbeddedPostgres, size: int) -> None:
    """Partitions of *size*, two of them; the keeper makes the others."""
    engine = create_engine(server.url("psycopg"))
    with engine.begin() as connection:
        migrate(connection, Outbox().settings.names)
        connection.execute(text("UPDATE outbox_meta SET partition_size = :size"), {"size": size})
        connection.execute(text("DROP TABLE outbox_p0, outbox_p1, outbox_p2, outbox_p3"))
        for number in range(3):
            low, high = number * size or "MINVALUE", (number + 1) * size
            connection.execute(
                text(
                    f"CREATE TABLE outbox_p{number} PARTITION OF outbox"
                    f" FOR VALUES FROM ({low}) TO ({high})"
                )
            )
    engine.dispose()


async def run(
    server: EmbeddedPostgres, report: Report, *, events: int = EVENTS, rate: float = RATE
) -> None:
    size = max(1_000, events // PHASES)
    prepare(server, size)
    spawn = multiprocessing.get_context("spawn")
    allowed, counts = spawn.Event(), spawn.Array("i", 4)
    processes = [
        spawn.Process(target=consume, args=(server.url(),), daemon=True),
        spawn.Process(target=keep, args=(server.url(), allowed, counts), daemon=True),
    ]
    for process in processes:
        process.start()
    load, sizes, lags = Load(server, rate), [], []
    outside = await asyncpg.connect(server.url())
    while await outside.fetchval("SELECT count(*) FROM outbox_listeners") == 0:
        await asyncio.sleep(0.1)
    began = time.perf_counter()
    tasks = [asyncio.create_task(load.fill())]
    tasks += [asyncio.create_task(load.commit_one_by_one()) for _ in range(WRITERS)]
    for phase in range(PHASES):
        load.maintained = phase % 2 == 1
        (allowed.set if load.maintained else allowed.clear)()
        while load.written < (phase + 1) * size:
            await asyncio.sleep(0.05)
            for task in tasks:
                if task.done():
                    task.result()
        sizes.append((await outside.fetchrow(SIZE))[0])
        lags.append(await outside.fetchval(LAG))
    seconds = time.perf_counter() - began
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await outside.close()
    for process in processes:
        process.terminate()
        process.join()
    for table in tables(load, sizes):
        report.add(table)
    tell(load, lags, counts[:], seconds)


def tables(load: Load, sizes: list[int]) -> tuple[Table, Table]:
    rows: dict[str, tuple[float, ...]] = {}
    kinds = ((False, "without maintenance"), (True, "with maintenance"))
    for maintained, name in kinds:
        times = sorted(load.times[maintained])
        points = statistics.quantiles(times, n=1000)
        shown = (statistics.median(times), points[989], points[998], times[-1])
        rows[name] = (len(times), *(one * 1e3 for one in shown))
    first, second = (rows[name] for _, name in kinds)
    rows["with / without"] = tuple(two / one for one, two in zip(first, second, strict=True))
    waited = Table(
        key="retention",
        title=f"commits under {load.written:,} events, with and without maintenance",
        columns=("commits", "p50 ms", "p99 ms", "p99.9 ms", "longest ms"),
        rows=rows,
        goals=(Goal(row="with / without", column="p99 ms", at_most=1.2),),
    )
    half = len(sizes) // 2
    halves = {"first half": sizes[2:half], "second half": sizes[half:]}
    spans = {name: (min(part) / 2**20, max(part) / 2**20) for name, part in halves.items()}
    columns = ("smallest MiB", "largest MiB")
    return waited, Table(
        key="retention-size", title="size of the log", columns=columns, rows=dict(spans)
    )


def tell(load: Load, lags: list[int], counts: list[int], seconds: float) -> None:
    made, dropped, adopted, waited = counts
    print(f"  {load.written:,} events in {seconds:.0f} s; partitions: made {made}, "
          f"dropped {dropped}, catch-all emptied {adopted}, gave up {waited} times")  # fmt: skip
    print(f"  the listener was behind by at most {max(lags):,} ids at the end of a phase")


def begin() -> None:
    parser = argparse.ArgumentParser(description="What do writers notice of retention?")
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("--rate", type=float, default=RATE, help="events a second")
    add_record(parser)
    given = parser.parse_args()

    async def sized(server: EmbeddedPostgres, report: Report) -> None:
        await run(server, report, events=given.events, rate=given.rate)

    measure("bench_retention", sized, record=given.record)


if __name__ == "__main__":
    begin()
