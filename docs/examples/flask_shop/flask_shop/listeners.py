"""What follows from an event. Sync handlers run in threads, at most ten at once in a process.

``python -m sa_outbox.consume flask_shop.listeners:outbox``
"""

from __future__ import annotations

import logging
import os
import smtplib
from datetime import timedelta
from email.message import EmailMessage

from sa_outbox import Event, OutboxSession, RetryPolicy

from .database import outbox
from .models import Order, Product

__all__ = ["outbox"]

log = logging.getLogger(__name__)
log.setLevel(logging.INFO)  # Python shows warnings only


@outbox.listener("warehouse", on="order.placed", concurrency=4)
def reserve(event: Event, session: OutboxSession) -> None:
    """In the transaction that moves the cursor: each order takes from the stock once."""
    order = session.get_one(Order, event.payload["order_id"])
    product = session.get_one(Product, event.payload["product"])
    if product.in_stock < order.quantity:
        order.state = "backordered"
    else:
        order.state = "reserved"
        before, product.in_stock = product.in_stock, product.in_stock - order.quantity
        if product.in_stock < product.reorder_below <= before:
            session.add_event("stock.low", {"product": product.name, "left": product.in_stock})
    log.info("order %s: %s", order.id, order.state)


@outbox.listener(
    "purchasing",
    on="stock.low",
    order="none",
    timeout=timedelta(seconds=30),
    retry=RetryPolicy.preset("notification"),
    external=True,  # a copy of the production database sends no mail
)
def tell_purchasing(event: Event) -> None:
    """No transaction is open meanwhile. It may be sent twice: the Message-ID is the same."""
    mail = EmailMessage()
    mail["From"], mail["To"] = "shop@shop.example", "purchasing@shop.example"
    mail["Subject"] = f"{event.payload['left']} left of {event.payload['product']}"
    mail["Message-ID"] = f"<{event.event_id}@shop.example>"
    mail.set_content(f"Request {event.headers.get('request_id')}")
    if "SMTP_HOST" not in os.environ:
        log.info("mail: %s", mail["Subject"])
        return
    host, port = os.environ["SMTP_HOST"], int(os.environ.get("SMTP_PORT", "25"))
    with smtplib.SMTP(host, port, timeout=20) as server:
        server.send_message(mail)
    log.info("mail sent: %s", mail["Subject"])
