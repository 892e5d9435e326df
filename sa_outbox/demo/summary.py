"""At the end: does the database agree with what was counted?"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import exists, func, select

from .listeners import outbox
from .shop import ORDER_PAID, ORDER_PLACED, Invoice, Order

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import ColumnElement, Select
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

    from .counts import Row, Snapshot


@dataclass(frozen=True, kw_only=True)
class DeadLetter:
    listener: str
    event_type: str
    position: int
    errors: tuple[dict[str, Any], ...]


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What the database says."""

    orders: int
    invoices: int
    events: Counter[str]
    orders_without_event: int
    events_without_order: int
    orders_without_invoice: int
    unsettled: int
    """Deliveries that are still waiting."""
    positions: dict[str, int]
    dead_letters: tuple[DeadLetter, ...]


@dataclass(frozen=True, kw_only=True)
class Summary:
    facts: Facts
    counted: Snapshot
    nameless_orders: int
    """Orders that the search index can't take."""

    @property
    def problems(self) -> list[str]:
        """What does not add up, one sentence each."""
        return [*self._of_the_shop(), *self._of_listeners(), *self._of_dead_letters()]

    def _of_the_shop(self) -> Iterator[str]:
        facts, orders = self.facts, self.facts.orders
        for what, count in (
            ("orders that the shop counted", self.counted.orders),
            (f"events {ORDER_PLACED}", facts.events[ORDER_PLACED]),
            (f"events {ORDER_PAID}", facts.events[ORDER_PAID]),
            ("invoices", facts.invoices),
        ):
            if count != orders:
                yield f"{orders:,} orders in the database, but {count:,} {what}"
        for what, count in (
            ("orders without an event", facts.orders_without_event),
            ("events without an order", facts.events_without_order),
            ("orders without an invoice", facts.orders_without_invoice),
            ("deliveries still wait to be settled", facts.unsettled),
        ):
            if count:
                yield f"{count:,} {what}"

    def _of_listeners(self) -> Iterator[str]:
        for row in self.counted.rows:
            due = self._due(row)
            if row.handled != due:
                yield f"{row.listener} had {due:,} events to handle and handled {row.handled:,}"

    def _of_dead_letters(self) -> Iterator[str]:
        found = self.facts.dead_letters
        if len(found) != self.nameless_orders:
            yield f"{len(found)} dead letters instead of {self.nameless_orders}"
        most = outbox.listeners["search_index"].retry_of(ORDER_PLACED).attempts
        for each in found:
            attempts = [error["attempt"] for error in each.errors]
            if each.listener == "search_index" and attempts != list(range(1, most + 1)):
                yield f"the dead letter at position {each.position} has the errors of {attempts}"

    def _due(self, row: Row) -> int:
        """Events that it has to handle: all of its types except the dead letters."""
        events = sum(self.facts.events[each] for each in outbox.listeners[row.listener].on)
        return events - sum(each.listener == row.listener for each in self.facts.dead_letters)

    @property
    def text(self) -> str:
        parts = [self._shop(), self._table(), *self._dead_letters(), self._verdict()]
        return "\n" + "\n\n".join(parts)

    def _shop(self) -> str:
        facts = self.facts
        return (
            f"{facts.orders:,} orders in the database, {self.counted.refused:,} were rolled back; "
            f"{facts.events.total():,} events, {facts.invoices:,} invoices."
        )

    def _table(self) -> str:
        titles = ("listener", "position", "events", "handled", "retries", "dead letters")
        rows = [
            (
                row.listener,
                f"{self.facts.positions.get(row.listener, 0):,}",
                f"{sum(self.facts.events[each] for each in outbox.listeners[row.listener].on):,}",
                f"{row.handled:,}",
                f"{row.retries:,}",
                f"{sum(each.listener == row.listener for each in self.facts.dead_letters):,}",
            )
            for row in self.counted.rows
        ]
        return "\n".join(
            f"{name:<14}" + "".join(f"{each:>10}" for each in numbers) + f"{last:>14}"
            for name, *numbers, last in (titles, *rows)
        )

    def _dead_letters(self) -> Iterator[str]:
        for each in self.facts.dead_letters:
            head = f"Dead letter of {each.listener}: {each.event_type} at position {each.position}"
            errors = (
                f"  attempt {error['attempt']}  {error['error']}: {error['message']}"
                for error in each.errors
            )
            yield "\n".join((head, *errors))

    def _verdict(self) -> str:
        problems = self.problems
        if problems:
            lines = "".join(f"\n  {each}" for each in problems)
            return f"It does NOT add up. Please report this:{lines}"
        return (
            "Every order has its events and one invoice; no event is without its order.\n"
            "Every listener handled every event, but for its dead letters. It all adds up."
        )


async def read_facts(engine: AsyncEngine) -> Facts:
    tables = outbox.tables
    log, dead = tables.outbox, tables.dead_letters
    by_type = select(log.c.event_type, func.count()).group_by(log.c.event_type)
    positions = select(tables.listeners.c.name, tables.listeners.c.last_processed_id)
    buried = select(dead.c.listener, dead.c.event_type, dead.c.position, dead.c.errors)
    async with engine.connect() as connection:
        return Facts(
            orders=await _count(connection, Order),
            invoices=await _count(connection, Invoice),
            events=Counter(dict((await connection.execute(by_type)).tuples().all())),
            orders_without_event=await _count(connection, Order, ~_has_event(ORDER_PLACED))
            + await _count(connection, Order, ~_has_event(ORDER_PAID)),
            events_without_order=await _count(connection, log, ~exists().where(_is_of_order())),
            orders_without_invoice=await _count(
                connection, Order, ~exists().where(Invoice.order_id == Order.id)
            ),
            unsettled=await _count(connection, tables.deliveries),
            positions=dict((await connection.execute(positions)).tuples().all()),
            dead_letters=tuple(
                DeadLetter(
                    listener=row.listener,
                    event_type=row.event_type,
                    position=row.position,
                    errors=tuple(row.errors),
                )
                for row in await connection.execute(buried.order_by(dead.c.id))
            ),
        )


def _is_of_order() -> ColumnElement[bool]:
    order_id: ColumnElement[int] = outbox.tables.outbox.c.payload["order_id"].as_integer()
    return order_id == Order.id


def _has_event(event_type: str) -> ColumnElement[bool]:
    return exists().where(outbox.tables.outbox.c.event_type == event_type, _is_of_order())


async def _count(connection: AsyncConnection, what: Any, *where: ColumnElement[bool]) -> int:
    counting: Select[int] = select(func.count()).select_from(what).where(*where)
    return await connection.scalar(counting) or 0
