"""The shop: its orders, and the events that are written with them.

Each order is one transaction with two events. One in four is refused when it is paid, after its
first event was flushed, and is rolled back: that event must not exist.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

import anyio
from sqlalchemy import BigInteger, Identity, Numeric, Text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from ..event.types import event_type
from ..outbox import Outbox
from ..producer.entity import RecordsEvents

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import async_sessionmaker

    from ..producer.session import AsyncOutboxSession

CUSTOMERS = ("Ada", "Grace", "Barbara", "Edsger")
NAMELESS = ""
"""Orders once; the search index can't handle that."""
ORDER_PLACED, ORDER_PAID = "demo.order_placed", "demo.order_paid"
MAX_PAUSE_SECONDS = 0.08
"""Seconds between two orders of a customer. Without a pause the shop would use the whole processor,
and nobody could see how far behind a commit the listeners are."""
NAMELESS_AFTER_SECONDS = 1.0

outbox: Outbox = Outbox()


class Base(DeclarativeBase):
    pass


class Order(RecordsEvents, Base):
    __tablename__ = "demo_orders"
    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    customer: Mapped[str] = mapped_column(Text)
    total: Mapped[Decimal] = mapped_column(Numeric(10, 2))

    def place(self) -> None:
        """Record the event on the entity; its id is known once the flush has inserted it."""
        self.record_event(
            OrderPlaced,
            lambda: OrderPlaced(self.id, self.customer, self.total),
            key=lambda: f"order-{self.id}",
        )


class Invoice(Base):
    """Written by a listener. Nothing here forbids two for one order: it must not happen."""

    __tablename__ = "demo_invoices"
    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    order_id: Mapped[int] = mapped_column(BigInteger)
    total: Mapped[Decimal] = mapped_column(Numeric(10, 2))


@event_type(ORDER_PLACED)
@dataclass(frozen=True)
class OrderPlaced:
    order_id: int
    customer: str
    total: Decimal


class PaymentRefusedError(Exception):
    pass


class Shop:
    """Customers who order concurrently until it closes, and how much they did."""

    def __init__(self, sessions: async_sessionmaker[AsyncOutboxSession]) -> None:
        self._sessions = sessions
        self._closing = anyio.Event()
        self.orders: int = 0
        self.refused: int = 0
        self.nameless_orders: int = 0
        self.written: Counter[str] = Counter()
        """Committed events, by type."""

    @property
    def is_closing(self) -> bool:
        return self._closing.is_set()

    async def open(self, seconds: float | None) -> None:
        """Serve the customers for *seconds*, or until it is closed; return when all have left."""
        async with anyio.create_task_group() as customers:
            for name in CUSTOMERS:
                customers.start_soon(self._serve, name)
            customers.start_soon(self._serve_nameless)
            with anyio.move_on_after(seconds):
                await self._closing.wait()
            self.close()

    def close(self) -> None:
        self._closing.set()

    async def _serve(self, customer: str) -> None:
        while not self.is_closing:
            try:
                await self._order(customer)
            except PaymentRefusedError:
                self.refused += 1
            await self._pause(random.uniform(0, MAX_PAUSE_SECONDS))  # noqa: S311 - not a secret

    async def _serve_nameless(self) -> None:
        await self._pause(NAMELESS_AFTER_SECONDS)
        await self._order(NAMELESS)
        self.nameless_orders += 1

    async def _pause(self, seconds: float) -> None:
        with anyio.move_on_after(seconds):
            await self._closing.wait()

    async def _order(self, customer: str) -> None:
        async with self._sessions.begin() as session:
            order = Order(customer=customer, total=Decimal(random.randint(100, 9999)) / 100)  # noqa: S311 - not secret
            order.place()
            session.add(order)
            await session.flush()  # the event is in the database, with its order
            _pay(customer)
            session.add_event(
                ORDER_PAID,
                {"order_id": order.id, "paid_at": datetime.now(UTC)},
                key=f"order-{order.id}",
            )
        self.orders += 1
        self.written.update((ORDER_PLACED, ORDER_PAID))


def _pay(customer: str) -> None:
    if customer != NAMELESS and random.random() < 0.25:  # noqa: S311 - not a secret
        raise PaymentRefusedError
