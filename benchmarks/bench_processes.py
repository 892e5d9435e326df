"""Do two processes handle twice as much as one?

Handlers that compute for 100 µs of processor time, one queue (``order="none"``), and a listener
that is divided by its keys (``partitions=8``). Consumers wait until all of them listen; then the
events are committed at once. Timed from the first handler of any process to the last. On two cores
the server has to share them with both. Goal: 1.7.

``python -m benchmarks.bench_processes``
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import TYPE_CHECKING, Any

import uvloop
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession  # noqa: TC002 - read at run time

from sa_outbox import Event, Outbox
from sa_outbox.consume.garbage import spare_what_is_loaded
from sa_outbox.consumer import Consumer
from sa_outbox.observe import Listening, Observation

from .alone import main
from .drains import append, prepared
from .latency import says
from .measure import Contestant, speeds, take_turns
from .report import Goal, Report
from .shop import EFFECT

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

    from sa_outbox.embedded import EmbeddedPostgres

EVENTS, ROUNDS = 10_000, 3
WORK_SECONDS = 100e-6
PATIENCE_SECONDS = 60
KINDS: dict[str, dict[str, Any]] = {
    'order="none"': {"order": "none"},
    'order="key", partitions=8': {"partitions": 8},
}
WITH_A_SESSION = 'order="key", partitions=8, one INSERT'
SESSIONS: dict[str, dict[str, Any]] = {WITH_A_SESSION: {"partitions": 8}}
"""What ``bench_processor`` asks about: the handlers make one INSERT, and do not compute."""
CHANNEL = Outbox().settings.names.notify_channel


class Seen:
    """When the first handler began, when the last one ended, and how many there were."""

    def __init__(self) -> None:
        self.began = self.ended = 0.0
        self.count = 0

    def begins(self) -> None:
        self.began = self.began or time.monotonic()
        self.count += 1

    def ends(self) -> None:
        self.ended = time.monotonic()


async def work(url: str, kind: str) -> None:
    """One process: handles until somebody closes its input, then prints first, last and count."""
    outbox, seen = Outbox(), Seen()

    async def compute(_event: Event[Any]) -> None:
        seen.begins()
        until = time.thread_time() + WORK_SECONDS
        while time.thread_time() < until:
            pass
        seen.ends()

    async def insert_one(_event: Event[Any], session: AsyncSession) -> None:
        seen.begins()
        await session.execute(EFFECT)
        seen.ends()

    handler = insert_one if kind == WITH_A_SESSION else compute
    outbox.listener("work", on="order.placed", **(KINDS | SESSIONS)[kind])(handler)

    def observe(observation: Observation) -> None:
        if isinstance(observation, Listening):
            print("listening", flush=True)

    consumer = Consumer(outbox, url, observers=[observe])
    spare_what_is_loaded()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(consumer.run())
        await asyncio.to_thread(sys.stdin.read)
        consumer.stop()
    print(json.dumps([seen.began, seen.ended, seen.count]), flush=True)


async def together(url: str, engine: AsyncEngine, kind: str, processes: int) -> float:
    async with engine.begin() as connection:
        for table in ("outbox_ranges", "outbox_listeners", "outbox"):
            await connection.execute(text(f"DELETE FROM {table}"))
    command = (sys.executable, "-m", "benchmarks.bench_processes", "work", url, kind)
    pipe = asyncio.subprocess.PIPE
    workers = [
        await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
        for _ in range(processes)
    ]
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            found = await handled_by(workers, engine)
    except BaseException:
        for worker in workers:
            worker.kill()
        raise
    handled = sum(count for _, _, count in found)
    if handled < EVENTS:
        raise RuntimeError(f"{handled} of {EVENTS} events were handled")
    return max(last for _, last, _ in found) - min(one for one, _, _ in found if one)


async def handled_by(
    workers: list[asyncio.subprocess.Process], engine: AsyncEngine
) -> list[tuple[float, float, int]]:
    """First, last and count of each process."""
    for worker in workers:
        await says(worker, b"listening")
    await settled_shares(engine, len(workers))
    await append(engine, EVENTS)
    async with engine.begin() as connection:
        await connection.execute(text(f"NOTIFY {CHANNEL}"))
        upper = (await connection.execute(text("SELECT max(id) FROM outbox"))).scalar_one()
    await passed(engine, upper)
    return [json.loads((await each.communicate(b""))[0].splitlines()[-1]) for each in workers]


async def settled_shares(engine: AsyncEngine, processes: int) -> None:
    """Each process of a divided listener has its part of the partitions."""
    owners = text(
        "SELECT count(DISTINCT locked_by) FROM outbox_listeners"
        " WHERE locked_by IS NOT NULL HAVING count(*) > 1"
    )
    while True:
        async with engine.connect() as connection:
            found = (await connection.execute(owners)).scalar_one_or_none()
        if found in (None, processes):
            return
        await asyncio.sleep(0.05)


async def passed(engine: AsyncEngine, upper: int) -> None:
    """All of it is handled and settled."""
    left = text(
        "SELECT (SELECT count(*) FROM outbox_ranges) + (SELECT count(*) FROM outbox_listeners"
        " WHERE last_processed_id < :upper)"
    )
    while True:
        async with engine.connect() as connection:
            if not (await connection.execute(left, {"upper": upper})).scalar_one():
                return
        await asyncio.sleep(0.05)


async def run(server: EmbeddedPostgres, report: Report) -> None:
    engine = await prepared(server.url("asyncpg"))

    def contestant(kind: str, processes: int) -> Contestant:
        return lambda: together(server.url(), engine, kind, processes)

    for kind in KINDS:
        contestants = {"one process": contestant(kind, 1), "two processes": contestant(kind, 2)}
        times = await take_turns(contestants, ROUNDS, warm=False)
        title = f"{EVENTS:,} events, a handler of 100 µs of computing, {kind}"
        goal = Goal(row="two processes", column="ratio", at_least=1.7)
        key = "processes-" + ("none" if "none" in kind else "key")
        report.add(speeds(key, title, times, EVENTS, goals=[goal]))
    await engine.dispose()


if __name__ == "__main__":
    if sys.argv[1:2] == ["work"]:
        uvloop.run(work(*sys.argv[2:]))
    else:
        main("bench_processes", run)
