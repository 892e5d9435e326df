"""Every kind of listener: by key, in total order, a queue, and one whose handler has a session."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from sqlalchemy import insert
from sqlalchemy.ext.asyncio import AsyncSession  # noqa: TC002 - read at run time

from sa_outbox import Event, Outbox
from sa_outbox.consumer import Consumer

from .drains import Watch, watched
from .shop import PAYLOAD, Order

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

KINDS = {
    "key": 'order="key"',
    "total": 'order="total"',
    "none": 'order="none"',
    "session": "a handler with a session",
}
SESSION_PART = 20
"""A handler with a session does an INSERT for each so-many-th event, to be about as quick."""


class Kinds:
    """One listener of each kind. ``watch`` is that of this turn."""

    def __init__(self) -> None:
        self.outbox = Outbox()
        self.watch = Watch(1)
        orders: dict[str, Any] = {"key": "key", "total": "total", "none": "none"}
        for name, order in orders.items():
            self.outbox.listener(name, on="order.placed", order=order, start="now")(self.handle)
        self.outbox.listener("session", on="order.placed", start="now")(self.handle_with_session)

    async def handle(self, event: Event[Any]) -> None:
        event.payload["order_id"]
        self.watch.saw_one()

    async def handle_with_session(self, event: Event[Any], session: AsyncSession) -> None:
        assert event.position is not None
        if event.position % SESSION_PART == 0:
            await session.execute(insert(Order).values(customer="c"))
        self.watch.saw_one()

    async def register(self, engine: AsyncEngine) -> None:
        """Every listener has its row, at the end of the log."""
        await Consumer(self.outbox, engine).drain()

    async def catch_up(self, engine: AsyncEngine, kind: str, events: int) -> float:
        """Seconds from the first to the last of *events* that wait for this kind."""
        self.watch = Watch(events)
        return await watched(self.outbox, engine, kind, self.watch)

    async def follow(self, engine: AsyncEngine, commits: int) -> None:
        """All of them handle *commits* of one event each, while they are made."""
        self.watch = Watch(commits * len(KINDS))
        sessions = self.outbox.async_sessionmaker(engine)
        consumer = Consumer(self.outbox, engine)
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(consumer.run())
            for _ in range(commits):
                async with sessions.begin() as session:
                    session.add_event("order.placed", PAYLOAD)
            await self.watch.finished.wait()
            consumer.stop()
            await running
