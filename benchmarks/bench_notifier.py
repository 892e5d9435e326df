"""What do writers pay for waking consumers?

Clients commit transactions, each with one row and one event, as quickly as they can: with the
notifier (``notify="on"``), and without (``notify="off"``), by turns on the same connections. One
connection listens. A ratio is commits per second. Goal: at least 0.95 with 32 and with 64 clients.

``python -m benchmarks.bench_notifier``
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import asyncpg

from sa_outbox import Outbox

from .alone import main
from .drains import prepared
from .measure import Contestant, middle, take_turns
from .report import Goal, Report, Table
from .shop import PAYLOAD, Order

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

    from sa_outbox.embedded import EmbeddedPostgres
    from sa_outbox.settings import Notify

CLIENTS, ROUNDS = (1, 8, 32, 64), 7
SECONDS = 0.5
"""For one client a turn takes about as long; more clients share the same number per second."""
RATE = 700


async def commits(outbox: Outbox, engine: AsyncEngine, clients: int, count: int) -> float:
    """Seconds for *count* transactions."""
    sessions = outbox.async_sessionmaker(engine)
    numbers = iter(range(count))

    async def client() -> None:
        for _ in numbers:
            async with sessions.begin() as session:
                session.add(Order(customer="c"))
                session.add_event("order.placed", PAYLOAD)

    began = time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(clients):
            tasks.create_task(client())
    return time.perf_counter() - began


def contestants(engine: AsyncEngine, clients: int, count: int) -> dict[str, Contestant]:
    def contestant(notify: Notify) -> Contestant:
        outbox = Outbox(notify=notify)
        return lambda: commits(outbox, engine, clients, count)

    return {"off": contestant("off"), "on": contestant("on")}


async def run(server: EmbeddedPostgres, report: Report) -> None:
    most = max(CLIENTS)
    engine = await prepared(server.url("asyncpg"), pool_size=most, max_overflow=0)
    listening = await asyncpg.connect(server.url())
    heard = 0

    def hear(*_: object) -> None:
        nonlocal heard
        heard += 1

    await listening.add_listener(Outbox().settings.names.notify_channel, hear)
    rows = {}
    for clients in CLIENTS:
        count = int(RATE * SECONDS * (1 if clients == 1 else 2))
        times = await take_turns(contestants(engine, clients, count), ROUNDS)
        paired = [off / on for on, off in zip(times["on"], times["off"], strict=True)]
        off, on = (count / sorted(times[way])[ROUNDS // 2] for way in ("off", "on"))
        rows[f"{clients} clients" if clients > 1 else "1 client"] = (off, on, *middle(paired))
    if not heard:
        raise RuntimeError("no notification arrived: nothing was measured")
    await listening.close()
    await engine.dispose()
    report.add(
        Table(
            key="notifier",
            title="commits per second without and with the notifier",
            columns=("off /s", "on /s", "ratio", "from", "to"),
            rows=rows,
            goals=tuple(
                Goal(row=f"{clients} clients", column="ratio", at_least=0.95)
                for clients in (32, 64)
            ),
        )
    )


if __name__ == "__main__":
    main("bench_notifier", run)
