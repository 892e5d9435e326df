"""What happens in the shop. These names and fields are read by others: change them with care.

A payload has what a listener needs and no more. It stays in the log for days.
"""

from __future__ import annotations

from dataclasses import dataclass

from sa_outbox import event_type


@event_type("order.placed")
@dataclass(frozen=True)
class OrderPlaced:
    order_id: int
    email: str
    total_cents: int


@event_type("order.cancelled")
@dataclass(frozen=True)
class OrderCancelled:
    order_id: int


@event_type("invoice.written")
@dataclass(frozen=True)
class InvoiceWritten:
    number: int
    email: str
    total_cents: int


def order_key(order_id: int) -> str:
    """Events of one order are handled in their order."""
    return f"order-{order_id}"
