"""Does it stay as quick, and as small, with a long log and an old snapshot?

``make bench-long``: three parts, one after the other, each with a server and a file of results of
its own. ``python -m benchmarks.bench_long --only memory`` runs one of them; ``--quick`` tries them
out in a minute or two. The titles of the tables say how large the logs were.

- size: two databases on one server, one with a short log, one with ten million events. By turns, so
  many events are added to each and every kind of listener handles them; then the latency of single
  events. Goal: at least 0.9 of the rate and at most 1.1 of the latency.
- memory: a process handles a log of five million events, from its beginning. Goal: at its end it
  has at most 1.1 of the memory that it had after a tenth.
- snapshot: two databases with short logs; in one of them somebody holds a snapshot for two minutes,
  so that no dead row is removed there. By turns, each kind of listener handles single commits,
  which move its cursor again and again, then a backlog. Goal: in the second half of that time, at
  least 0.9 of the rate without the snapshot.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import sys
import time
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import asyncpg
import uvloop

from sa_outbox import Event, Outbox
from sa_outbox.consume.garbage import spare_what_is_loaded
from sa_outbox.consumer import Consumer, ConsumerSettings
from sa_outbox.consumer.connection.connections import Connections
from sa_outbox.consumer.connection.engines import engines
from sa_outbox.consumer.upkeep.round import MaintenanceRound

from .alone import add_record, measure
from .drains import append, prepared, vacuum
from .kinds import KINDS, Kinds
from .latency import commit_to_handler
from .machine import resident_bytes
from .measure import Times, middle
from .report import Goal, Report, Table

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from sqlalchemy.ext.asyncio import AsyncEngine

    from sa_outbox.embedded import EmbeddedPostgres

EVENTS, SHORT, ROUNDS = 10_000_000, 20_000, 7
ADDED, AT_ONCE = 20_000, 500_000
LATENCIES, PORTIONS = 300, 6
SNAPSHOT_SECONDS, SINGLE = 120.0, 100
SETTINGS = {"max_wal_size": "4GB", "shared_buffers": "256MB"}
KEPT = timedelta(days=3_000)
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Sizes:
    events: int
    """In the long log. Half of them for the memory of a process."""
    added: int
    """For each turn of a listener."""
    seconds: float
    """For how long the snapshot is held."""


async def compare_sizes(server: EmbeddedPostgres, report: Report, sizes: Sizes) -> None:
    events, added = sizes.events, sizes.added
    urls = {name: server.create_database(name) for name in ("short", "long")}
    logs = {name: await prepared(asyncpg_url(url)) for name, url in urls.items()}
    began = time.monotonic()
    await lengthen(logs["short"], urls["short"], SHORT)
    await lengthen(logs["long"], urls["long"], events)
    print(f"\n{events:,} events written in {time.monotonic() - began:.0f} s", flush=True)
    kinds = {name: Kinds() for name in logs}
    for name, engine in logs.items():
        await kinds[name].register(engine)
    rates: dict[str, Times] = {name: {kind: [] for kind in KINDS} for name in logs}
    for number in range(ROUNDS + 1):  # the first fills the caches
        for name, engine in shuffled(logs):
            await append(engine, added)
            for kind in KINDS:
                taken = await kinds[name].catch_up(engine, kind, added)
                if number:
                    rates[name][kind].append(taken)
    title = f"events/s with a log of {SHORT:,} and of {events:,} events"
    report.add(paired("long-rates", title, rates, added, ("short", "long")))
    report.add(await latencies(urls, events))
    for engine in logs.values():
        await engine.dispose()


async def latencies(urls: dict[str, str], events: int) -> Table:
    """Medians of portions; a ratio is that of two portions that followed each other."""
    rows = {}
    for order in ("key", "none"):
        medians: Times = {name: [] for name in urls}
        for _ in range(PORTIONS):
            for name, url in shuffled(urls):
                found = await commit_to_handler(url, order, LATENCIES // PORTIONS)
                medians[name].append(1000 * statistics.median(found))
        short, long = medians["short"], medians["long"]
        ratios = middle([two / one for one, two in zip(short, long, strict=True)])
        rows[f'order="{order}"'] = (statistics.median(short), statistics.median(long), *ratios)
    return Table(
        key="long-latency",
        title="from a commit's return to the handler, medians, with a log of"
        f" {SHORT:,} and of {events:,} events",
        columns=("short ms", "long ms", "ratio", "from", "to"),
        rows=rows,
        goals=tuple(Goal(row=row, column="ratio", at_most=1.1) for row in rows),
    )


def shuffled(contestants: dict[str, T]) -> list[tuple[str, T]]:
    return random.sample(list(contestants.items()), len(contestants))


async def lengthen(engine: AsyncEngine, url: str, events: int) -> None:
    """Write *events*; maintenance makes the partitions meanwhile, as a consumer does."""
    upkeep = MaintenanceRound(
        Outbox().tables, ConsumerSettings(retention=KEPT), lambda _observation: None
    )
    connections = Connections(
        engines(url, None, ()).connect, most=1, timeout=60, connecting=5, patience=60
    )
    for start in range(0, events, AT_ONCE):
        async with connections.connection() as connection:
            await upkeep.run(connection)
        await append(engine, min(AT_ONCE, events - start))
    await vacuum(engine)
    await connections.close(5.0)


async def memory(server: EmbeddedPostgres, report: Report, sizes: Sizes) -> None:
    events, url, rows = sizes.events // 2, server.url(), {}
    engine = await prepared(server.url("asyncpg"))
    await lengthen(engine, url, events)
    await engine.dispose()
    for order in ("key", "none"):
        command = (sys.executable, "-m", "benchmarks.bench_long", "drain", url, order, str(events))
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        said, _ = await process.communicate()
        seconds, resident = json.loads(said.splitlines()[-1])
        shown = [resident[at] / 2**20 for at in (0, 4, 9)]
        rows[f'order="{order}"'] = (events / seconds, *shown, shown[-1] / shown[0])
    report.add(
        Table(
            key="long-memory",
            title=f"memory of a process that handles {events:,} events",
            columns=("events/s", "tenth MiB", "half MiB", "all MiB", "ratio"),
            rows=rows,
            goals=tuple(Goal(row=row, column="ratio", at_most=1.1) for row in rows),
        )
    )


async def drain_and_watch(url: str, order: Any, events: int) -> None:
    """A process: handles so many events, and notes its memory after each tenth of them."""
    outbox, finished = Outbox(), asyncio.Event()
    seen, first = 0, 0.0
    sizes: list[int] = []

    @outbox.listener(f"memory_{order}", on="order.placed", order=order)
    async def handler(event: Event[Any]) -> None:
        nonlocal seen, first
        event.payload["order_id"]
        first = first or time.monotonic()
        seen += 1
        if seen % (events // 10) == 0 and len(sizes) < 10:
            sizes.append(resident_bytes())
            if len(sizes) == 10:
                finished.set()

    consumer = Consumer(outbox, url)
    spare_what_is_loaded()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(consumer.run())
        await finished.wait()
        taken = time.monotonic() - first
        consumer.stop()
    print(json.dumps([taken, sizes]))


async def compare_snapshots(server: EmbeddedPostgres, report: Report, sizes: Sizes) -> None:
    added = sizes.added
    urls = {name: server.create_database(name) for name in ("without", "with")}
    logs = {name: await prepared(asyncpg_url(url)) for name, url in urls.items()}
    kinds = {name: Kinds() for name in logs}
    for name, engine in logs.items():
        await append(engine, SHORT)
        await vacuum(engine)
        await kinds[name].register(engine)
    times: dict[str, Times] = {name: {kind: [] for kind in KINDS} for name in logs}
    holder = await asyncpg.connect(urls["with"])
    await holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    await holder.fetchval("SELECT count(*) FROM outbox_listeners")
    began = time.monotonic()
    while time.monotonic() < began + sizes.seconds:
        for name, engine in shuffled(logs):
            await kinds[name].follow(engine, SINGLE)
            await append(engine, added)
            for kind in KINDS:
                times[name][kind].append(await kinds[name].catch_up(engine, kind, added))
    held = time.monotonic() - began
    dead = await holder.fetchval("SELECT n_tup_upd FROM pg_stat_user_tables"
                                 " WHERE relname = 'outbox_listeners'")  # fmt: skip
    await holder.close()
    late = {
        name: {kind: taken[len(taken) // 2 :] for kind, taken in of_all.items()}
        for name, of_all in times.items()
    }
    print(f"\nthe snapshot was held for {held:.0f} s; cursors moved {dead:,} times meanwhile")
    title = f"events/s without and with a snapshot held for {held:.0f} s, second half"
    report.add(paired("long-snapshot", title, late, added, ("without", "with")))
    for engine in logs.values():
        await engine.dispose()


def paired(
    key: str, title: str, times: dict[str, Times], events: int, names: tuple[str, str]
) -> Table:
    """Rates in both databases, and the speed in the second as a part of that in the first."""
    rows = {}
    for kind, shown in KINDS.items():
        one, two = (times[name][kind] for name in names)
        rates = (events / sorted(taken)[len(taken) // 2] for taken in (one, two))
        rows[shown] = (*rates, *middle([a / b for a, b in zip(one, two, strict=True)]))
    return Table(
        key=key,
        title=title,
        columns=(f"{names[0]} /s", f"{names[1]} /s", "ratio", "from", "to"),
        rows=rows,
        goals=tuple(Goal(row=row, column="ratio", at_least=0.9) for row in rows),
    )


def asyncpg_url(url: str) -> str:
    return url.replace("postgresql://", "postgresql+asyncpg://")


class Part(Protocol):
    def __call__(
        self, server: EmbeddedPostgres, report: Report, /, sizes: Sizes
    ) -> Awaitable[None]: ...


PARTS: dict[str, Part] = {
    "size": compare_sizes,
    "memory": memory,
    "snapshot": compare_snapshots,
}
QUICK = Sizes(events=200_000, added=4_000, seconds=10.0)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_long")
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("--seconds", type=float, default=SNAPSHOT_SECONDS, help="of the snapshot")
    parser.add_argument("--only", choices=list(PARTS), help="one part, and no other is recorded")
    parser.add_argument("--quick", action="store_true", help="small, to try it out")
    add_record(parser)
    given = parser.parse_args()
    sizes = Sizes(events=given.events, added=ADDED, seconds=given.seconds)
    if given.quick:
        sizes = QUICK
    for part in (given.only,) if given.only else PARTS:
        run = partial(PARTS[part], sizes=sizes)
        measure("bench_long", run, record=given.record, settings=SETTINGS, part=part)


if __name__ == "__main__":
    if sys.argv[1:2] == ["drain"]:
        uvloop.run(drain_and_watch(sys.argv[2], sys.argv[3], int(sys.argv[4])))
    else:
        main()
