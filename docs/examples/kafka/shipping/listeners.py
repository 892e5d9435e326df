"""What the service does about its events.

``python -m sa_outbox.consume shipping.listeners:outbox``
"""

from __future__ import annotations

import structlog

from sa_outbox import AsyncOutboxSession, Event, Reject

from .database import outbox
from .models import Parcel

__all__ = ["outbox"]

log = structlog.get_logger()


@outbox.listener("parcels", on="order.placed")
async def pack(event: Event, session: AsyncOutboxSession) -> None:
    """In the transaction that moves the cursor: from Kafka to the parcel, exactly once."""
    order, request_id = event.payload, event.headers.get("request_id")
    session.add(
        Parcel(
            order_id=order["order_id"],
            customer=order["customer"],
            product=order["product"],
            request_id=None if request_id is None else str(request_id),
        )
    )
    log.info("parcel packed", order_id=order["order_id"])


@outbox.listener("unreadable", on="message.unreadable", order="none")
async def give_up(event: Event) -> None:
    """For people: ``sa-outbox dead-letters list`` shows it."""
    raise Reject(f"{event.payload['place']} can't be read: {event.payload['error']}")
