"""Three listeners: one that writes, one that fails now and then, one that can't handle an event."""

from __future__ import annotations

import random
from collections.abc import Sequence  # noqa: TC003 - handlers' annotations are read
from datetime import timedelta
from typing import Any

import anyio
from sqlalchemy.ext.asyncio import AsyncSession  # noqa: TC002 - handlers' annotations are read

from ..event.event import Event  # noqa: TC001 - the annotations of handlers are read
from ..policy.retry import RetryPolicy
from .shop import NAMELESS, ORDER_PAID, ORDER_PLACED, Invoice, OrderPlaced, outbox

__all__ = ["DESCRIPTIONS", "outbox"]

DESCRIPTIONS = {
    "billing": "writes an invoice through its session: exactly once",
    "mailer": "fails for one attempt in ten, and attempts again",
    "search_index": "can't take one certain order: a dead letter after 4 attempts",
}


class MailServerBusyError(Exception):
    pass


@outbox.listener("billing")
async def invoice(events: Sequence[Event[OrderPlaced]], session: AsyncSession) -> None:
    """In one transaction with the cursor: an invoice per order, whatever happens between."""
    session.add_all(
        Invoice(order_id=event.payload.order_id, total=event.payload.total) for event in events
    )


@outbox.listener(
    "mailer",
    on=ORDER_PAID,
    concurrency=8,
    # Enough attempts that bad luck alone never makes a dead letter.
    retry=RetryPolicy(attempts=12, base=timedelta(milliseconds=50), maximum=timedelta(seconds=1)),
)
async def send(event: Event[Any]) -> None:
    """At least once: the outside world has no transactions."""
    await anyio.sleep(random.uniform(0, 0.01))  # noqa: S311 - not a secret
    if random.random() < 0.1:  # noqa: S311 - not a secret
        raise MailServerBusyError(f"no time for order {event.payload['order_id']}")


@outbox.listener(
    "search_index",
    on=[ORDER_PLACED, ORDER_PAID],
    # No jitter, so that it can be watched: 0.2 s, 0.4 s, 0.8 s.
    retry=RetryPolicy(attempts=4, base=timedelta(milliseconds=200), jitter=False),
)
async def index(event: Event[Any]) -> None:
    """Later events of a failing order wait behind it; all other orders continue."""
    if event.event_type == ORDER_PLACED and event.payload["customer"] == NAMELESS:
        shard = random.randint(1, 9)  # noqa: S311 - not a secret
        raise ValueError(f"shard {shard}: order {event.payload['order_id']} has no name")
