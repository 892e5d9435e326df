"""Does each of twenty listeners in one process get its share?

A backlog for twenty listeners: of order="key", of order="none", ten of each. Counted from the
moment when every one has handled an event, until half of all deliveries are handled: each should
have a twentieth of those. Goal: every one has at least half of that.

``python -m benchmarks.bench_listeners``
"""

from __future__ import annotations

import asyncio
import statistics
from collections import Counter
from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from sa_outbox import Event, Outbox
from sa_outbox.consumer import Consumer

from .alone import main
from .drains import fill, prepared
from .report import Goal, Report, Table

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sqlalchemy.ext.asyncio import AsyncEngine

    from sa_outbox.embedded import EmbeddedPostgres

LISTENERS, BACKLOG, ROUNDS = 20, 15_000, 3
MIXES: dict[str, tuple[Any, ...]] = {
    '20 with order="key"': ("key",),
    '20 with order="none"': ("none",),
    "ten of each": ("key", "none"),
}


class Share:
    """Counts the deliveries of each listener, from when all have begun."""

    def __init__(self, orders: tuple[Any, ...]) -> None:
        self.outbox = Outbox()
        self.handled: Counter[str] = Counter()
        self.before: Counter[str] = Counter()
        self.half = asyncio.Event()
        self._left = LISTENERS * BACKLOG // 2
        for number in range(LISTENERS):
            order = orders[number % len(orders)]
            name = f"{order}-{number}"
            self.outbox.listener(name, on="order.placed", order=order)(self._handler(name))

    def _handler(self, name: str) -> Callable[[Event[Any]], Awaitable[None]]:
        async def handler(_event: Event[Any]) -> None:
            if not self._left:
                return
            self.handled[name] += 1
            if self.handled[name] == 1 and len(self.handled) == LISTENERS:
                self.before = self.handled.copy()
            self._left -= 1
            if not self._left:
                self.half.set()

        return handler

    def parts(self) -> dict[str, float]:
        """What each had since all have begun, as a part of a twentieth."""
        counted = {name: count - self.before[name] for name, count in self.handled.items()}
        fair = sum(counted.values()) / LISTENERS
        return {name: count / fair for name, count in counted.items()}


async def shares(engine: AsyncEngine, orders: tuple[Any, ...]) -> dict[str, float]:
    async with engine.begin() as connection:
        await connection.execute(text("DELETE FROM outbox_ranges"))
        await connection.execute(text("DELETE FROM outbox_listeners"))
    share = Share(orders)
    consumer = Consumer(share.outbox, engine)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(consumer.run())
        await share.half.wait()
        consumer.stop()
    return share.parts()


async def run(server: EmbeddedPostgres, report: Report) -> None:
    engine = await prepared(server.url("asyncpg"))
    await fill(engine, BACKLOG)
    rows = {}
    for mix, orders in MIXES.items():
        found = [(await shares(engine, orders)).values() for _ in range(ROUNDS)]
        rows[mix] = tuple(statistics.median(map(pick, found)) for pick in (min, max))
    await engine.dispose()
    report.add(
        Table(
            key="shares",
            title=f"shares of {LISTENERS} listeners in one process, {BACKLOG:,} events each",
            columns=("smallest ratio", "largest ratio"),
            rows=rows,
            goals=tuple(Goal(row=mix, column="smallest ratio", at_least=0.5) for mix in MIXES),
        )
    )


if __name__ == "__main__":
    main("bench_listeners", run)
