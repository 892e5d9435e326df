"""How quickly do others on PostgreSQL drain and start, and how quickly does sa_outbox?

``make bench-peers``. Installs each peer in its newest version (``environments.py``), in its fastest
documented configuration (``peers/``). One process for each, the same server, the same payload, a
handler that reads one field; contestants take turns in random order, each in a database of its own.

- drain: so many events are written before anybody looks; timed from the first handler to the last.
  Goals: order="key" and order="total" have at least 1.8 times the speed of eventsourcing, and
  order="none" at least 5 times that of graphile-worker.
- latency: from the return of a commit to the start of the handler, in two processes, one event at a
  time. Goal: order="key" and order="none" have at most the median of graphile-worker, and of
  pgqueuer.

It compares different things. Queues delete or update a row per job, which is what lets each job
fail, wait and be retried by itself; a log is read with a cursor. procrastinate drains fewer events:
its rate is no other with more of them. A peer that is left out has no goals.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
from typing import TYPE_CHECKING

import asyncpg
import click

from .alone import measure
from .environments import ALL, NotInstalled, Peer
from .latency import says
from .measure import Times, speeds, waits
from .report import Goal
from .shop import PAYLOAD

if TYPE_CHECKING:
    from sa_outbox.embedded import EmbeddedPostgres

    from .report import Report, Table

PATIENCE_SECONDS = 180
DRAIN_GOALS = (
    ("key", "eventsourcing", 1.8),
    ("total", "eventsourcing", 1.8),
    ("none", "graphile", 5.0),
)
"""Which order has at least how many times a peer's speed."""
LATENCY_GOALS = [
    (order, peer, 1.0) for order in ("key", "none") for peer in ("graphile", "pgqueuer")
]
"""Which order has at most how many times a peer's median."""


class Contest:
    """A peer with a database of its own."""

    def __init__(self, name: str, peer: Peer, dsn: str) -> None:
        self.name = name
        self.peer = peer
        self._dsn = dsn
        self._environment = os.environ | {
            "BENCH_DSN": dsn,
            "BENCH_PAYLOAD": json.dumps(PAYLOAD),
            **peer.environment,
        }

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *self.peer.command(*arguments),
            env=self._environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    async def said(self, *arguments: str) -> bytes:
        process = await self.start(*arguments)
        return await self._end_of(process)

    async def _end_of(self, process: asyncio.subprocess.Process) -> bytes:
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                said, errors = await process.communicate()
        except BaseException:
            process.kill()
            raise
        if process.returncode:
            raise RuntimeError(f"{self.peer.title}: {errors.decode()[-800:]}")
        return said.strip().splitlines()[-1] if said.strip() else b""

    async def drain(self, events: int) -> float:
        """Seconds per event."""
        count = min(events, self.peer.most)
        await self.said("prepare")
        await self.said("fill", str(count))
        plain = await asyncpg.connect(self._dsn)
        await plain.execute("VACUUM ANALYZE")
        await plain.close()
        return float(json.loads(await self.said("drain", str(count)))) / count

    async def latency(self, events: int) -> list[float]:
        await self.said("prepare")
        handling = await self.start("handle", str(events))
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await says(handling, b"ready")
        except BaseException:
            handling.kill()
            raise
        committed = json.loads(await self.said("send", str(events)))
        began = json.loads(await self._end_of(handling))
        return [began[number] - done for number, done in committed.items()]


def installed(names: tuple[str, ...], report: Report) -> dict[str, Peer]:
    found = {}
    for name in names:
        peer = ALL[name]
        try:
            version = peer.install()
        except NotInstalled as error:
            print(f"{peer.title}: left out, it can't be installed: {error}")
            continue
        if peer.requires:
            report.machine[peer.title] = version
        found[name] = peer
    return found


async def run(
    server: EmbeddedPostgres,
    report: Report,
    *,
    names: tuple[str, ...],
    events: int,
    rounds: int,
    latencies: int,
) -> None:
    peers = installed(names, report)
    contests = [
        Contest(name, peer, server.create_database(f"peer_{name}")) for name, peer in peers.items()
    ]
    report.introduce()
    drained: Times = {each.peer.title: [] for each in contests}
    for number in range(rounds):
        for each in random.sample(contests, len(contests)):
            taken = await each.drain(events)
            drained[each.peer.title].append(taken)
            print(f"  round {number + 1}: {each.peer.title} {1 / taken:,.0f}", flush=True)
    report.add(drains(drained, events))
    waited: Times = {each.peer.title: [] for each in contests}
    portions = 3
    for _ in range(portions):
        for each in random.sample(contests, len(contests)):
            waited[each.peer.title] += await each.latency(latencies // portions)
    report.add(latency(waited, latencies))


def drains(times: Times, events: int) -> Table:
    """Speed against the first contestant, and against peers, within a round."""
    goals = [
        Goal(row=ALL[order].title, column=column(peer), at_least=least)
        for order, peer, least in DRAIN_GOALS
        if have_run(times, order, peer)
    ]
    title = f"a backlog of {events:,} events, a handler that reads one field"
    beside = columns(times, ("eventsourcing", "graphile"))
    return speeds("peers-drain", title, times, 1, goals=goals, beside=beside)


def latency(waited: Times, events: int) -> Table:
    goals = [
        Goal(row=ALL[order].title, column=column(peer), at_most=most)
        for order, peer, most in LATENCY_GOALS
        if have_run(waited, order, peer)
    ]
    title = f"from a commit's return to the handler, {events} events, one at a time"
    beside = columns(waited, ("graphile", "pgqueuer"))
    return waits("peers-latency", title, waited, goals=goals, beside=beside)


def columns(times: Times, peers: tuple[str, ...]) -> dict[str, str]:
    """For each of the peers that has run, the column of the ratios to it."""
    return {column(peer): ALL[peer].title for peer in peers if have_run(times, peer)}


def column(peer: str) -> str:
    return f"to {peer} ratio"


def have_run(times: Times, *names: str) -> bool:
    return all(ALL[name].title in times for name in names)


@click.command()
@click.option("--events", default=50_000, show_default=True)
@click.option("--rounds", default=5, show_default=True)
@click.option("--latencies", default=150, show_default=True)
@click.option("--only", multiple=True, type=click.Choice(list(ALL)))
@click.option("--record", is_flag=True, help="Write the file in benchmarks/results.")
def main(*, events: int, rounds: int, latencies: int, only: tuple[str, ...], record: bool) -> None:
    async def chosen(server: EmbeddedPostgres, report: Report) -> None:
        names = only or tuple(ALL)
        await run(server, report, names=names, events=events, rounds=rounds, latencies=latencies)

    measure("bench_peers", chosen, record=record)


if __name__ == "__main__":
    main()
