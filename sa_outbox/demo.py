"""``sa-outbox demo``: a small shop that commits orders, and what becomes of their events.

An embedded PostgreSQL, the tables, a few customers who order at once. Some orders fail and are
rolled back; their events must not exist. At the end the log is compared with the orders.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from sqlalchemy import BigInteger, Identity, Numeric, Text, func, select
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from .embedded import EmbeddedPostgres
from .event_types import event_type
from .outbox import Outbox
from .producer.entity import RecordsEvents
from .schema import migrate

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, async_sessionmaker

    from .producer.session import AsyncOutboxSession

_CUSTOMERS = ("Ada", "Grace", "Barbara", "Edsger")


class _Base(DeclarativeBase):
    pass


class _Order(RecordsEvents, _Base):
    __tablename__ = "demo_orders"
    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    customer: Mapped[str] = mapped_column(Text)
    total: Mapped[Decimal] = mapped_column(Numeric(10, 2))

    def place(self) -> None:
        """Record the fact on the entity; its id is known when the flush has inserted it."""
        self.record_event(
            OrderPlaced,
            lambda: OrderPlaced(self.id, self.customer, self.total),
            key=lambda: f"order-{self.id}",
        )


@event_type("demo.order_placed")
@dataclass(frozen=True)
class OrderPlaced:
    order_id: int
    customer: str
    total: Decimal


class _PaymentRefusedError(Exception):
    pass


@dataclass
class Summary:
    """What happened, counted by the program, to be compared with what the database says."""

    placed: int = 0
    refused: int = 0
    notified: int = 0
    seconds: float = 0
    events: Counter[str] = field(default_factory=Counter)
    orders: int = 0
    orders_without_event: int = 0

    @property
    def holds(self) -> bool:
        return (
            self.orders == self.placed == self.events["demo.order_placed"]
            and self.events["demo.order_paid"] == self.placed
            and self.orders_without_event == 0
        )

    def told(self) -> str:
        by_type = ", ".join(f"{count:,} {name}" for name, count in sorted(self.events.items()))
        verdict = (
            "Every order has its events, and no event is without its order."
            if self.holds
            else "Orders and events do NOT agree. Please report this."
        )
        return (
            f"\n{self.orders:,} orders in the database, {self.refused:,} were rolled back.\n"
            f"{sum(self.events.values()):,} events in the log, by type: {by_type}.\n"
            f"{self.notified:,} wake-ups (NOTIFY) for {self.placed:,} commits.\n{verdict}"
        )


async def run(seconds: float, say: Callable[[str], None]) -> Summary:
    """The demo. *say* gets lines for a person to read."""
    say("Starting an embedded PostgreSQL ...")
    with EmbeddedPostgres() as server:
        say(f"PostgreSQL {server.version} on port {server.port}, for the time of this demo.")
        engine = create_async_engine(server.url("asyncpg"))
        outbox = Outbox()
        try:
            async with engine.begin() as connection:
                await connection.run_sync(migrate, outbox.settings.names)
                await connection.run_sync(_Base.metadata.create_all)
            say("The tables are made. The shop is open; one order in four fails and rolls back.")
            summary = Summary()
            listening = await _count_notifications(engine, outbox, summary)
            await _shop(outbox.async_sessionmaker(engine), seconds, summary, say)
            await _read_log(engine, outbox, summary)
            await listening.invalidate()
            await listening.close()
        finally:
            await engine.dispose()
    return summary


async def _shop(
    sessions: async_sessionmaker[AsyncOutboxSession],
    seconds: float,
    summary: Summary,
    say: Callable[[str], None],
) -> None:
    began = time.monotonic()
    customers = [
        asyncio.create_task(_customer(name, sessions, began + seconds, summary))
        for name in _CUSTOMERS
    ]
    while any(not each.done() for each in customers):
        await asyncio.wait(customers, timeout=1)
        summary.seconds = time.monotonic() - began
        say(
            f"  {summary.seconds:4.1f} s   {summary.placed:6,} orders   "
            f"{summary.refused:5,} rolled back   {summary.notified:4,} wake-ups"
        )
    await asyncio.gather(*customers)


async def _customer(
    name: str,
    sessions: async_sessionmaker[AsyncOutboxSession],
    until: float,
    summary: Summary,
) -> None:
    while time.monotonic() < until:
        try:
            async with sessions.begin() as session:
                order = _Order(customer=name, total=Decimal(random.randint(100, 9999)) / 100)  # noqa: S311 - no secret
                order.place()
                session.add(order)
                await session.flush()  # the event is in the database, with its order
                _pay()
                session.add_event(
                    "demo.order_paid",
                    {"order_id": order.id, "paid_at": datetime.now(UTC)},
                    key=f"order-{order.id}",
                )
            summary.placed += 1
        except _PaymentRefusedError:
            summary.refused += 1


def _pay() -> None:
    if random.random() < 0.25:  # noqa: S311 - no secret
        raise _PaymentRefusedError


async def _count_notifications(
    engine: AsyncEngine, outbox: Outbox, summary: Summary
) -> AsyncConnection:
    def notified(*_: object) -> None:
        summary.notified += 1

    connection = await engine.connect()
    raw = await connection.get_raw_connection()
    driver = raw.driver_connection
    assert driver is not None  # noqa: S101 - for the type checker: it is just connected
    await driver.add_listener(outbox.settings.names.notify_channel, notified)
    return connection


async def _read_log(engine: AsyncEngine, outbox: Outbox, summary: Summary) -> None:
    log = outbox.tables.outbox
    by_type = select(log.c.event_type, func.count()).group_by(log.c.event_type)
    order_ids = select(log.c.payload["order_id"].as_integer()).where(
        log.c.event_type == "demo.order_placed"
    )
    without = select(func.count()).select_from(_Order).where(_Order.id.not_in(order_ids))
    async with engine.connect() as connection:
        for name, count in await connection.execute(by_type):
            summary.events[name] = count
        summary.orders = await connection.scalar(select(func.count()).select_from(_Order)) or 0
        summary.orders_without_event = await connection.scalar(without) or 0
