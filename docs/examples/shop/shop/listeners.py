"""What follows from an event."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import httpx2
import structlog
from sqlalchemy import update

from sa_outbox import AsyncOutboxSession, Event, RetryPolicy

from .database import outbox
from .events import InvoiceWritten, OrderCancelled, OrderPlaced, order_key
from .models import Invoice
from .settings import settings

__all__ = ["outbox"]

log = structlog.get_logger()
mail_service: httpx2.AsyncClient | None = None


@outbox.lifespan
async def connect_to_mail_service() -> AsyncIterator[None]:
    """One client for all handlers of the process."""
    global mail_service
    if settings.mail_url is None:
        yield
        return
    async with httpx2.AsyncClient(base_url=settings.mail_url, timeout=10) as mail_service:
        yield


@outbox.listener("billing")
async def keep_the_books(
    event: Event[OrderPlaced | OrderCancelled], session: AsyncOutboxSession
) -> None:
    """In the transaction that moves the cursor: each order has one invoice, whatever crashes."""
    match event.payload:
        case OrderPlaced(order_id=order_id, email=email, total_cents=total):
            invoice = Invoice(order_id=order_id, total_cents=total)
            session.add(invoice)
            await session.flush()
            written = InvoiceWritten(number=invoice.number, email=email, total_cents=total)
            session.add_event(written, key=order_key(order_id))
            log.info("invoice written", invoice=invoice.number)
        case OrderCancelled(order_id=order_id):
            # Never before its invoice: events of a key come in their order.
            void = update(Invoice).where(Invoice.order_id == order_id).values(void=True)
            await session.execute(void)


@outbox.listener(
    "mail",
    order="none",
    concurrency=10,
    timeout=timedelta(seconds=30),
    retry=RetryPolicy.preset("notification"),
    external=True,  # a copy of the production database sends no mail
)
async def send_invoice(event: Event[InvoiceWritten]) -> None:
    """No transaction is open meanwhile. It may run twice: the service recognises the key."""
    invoice = event.payload
    if mail_service is None:
        log.info("mail", to=invoice.email, about=f"invoice {invoice.number}")
        return
    response = await mail_service.post(
        "/mails",
        json={"to": invoice.email, "subject": f"Your invoice {invoice.number}"},
        headers={
            "Idempotency-Key": str(event.event_id),
            "X-Request-ID": str(event.headers["request_id"]),
        },
    )
    response.raise_for_status()
    log.info("mail sent", invoice=invoice.number)
