"""A shop in the middle of its day: what the pages show when they are looked at for real."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import anyio
from sqlalchemy.ext.asyncio import AsyncEngine

from sa_outbox import AsyncOutboxSession, Event, Outbox, RetryPolicy

PASSING = RetryPolicy(attempts=3, base=timedelta(milliseconds=20), jitter=False)


class CardDeclinedError(Exception):
    code = "card-declined"


class MailboxUnavailableError(Exception):
    code = "mailbox-unavailable"


def shop() -> Outbox:
    """Six listeners, of which some have their troubles."""
    outbox = Outbox(audit="all")
    outbox.cron("*/15 * * * *", "stock.counted", time_zone="UTC")
    outbox.cron(
        "0 3 * * 1-5",
        "report.requested",
        {"order_id": 0},
        time_zone="Europe/Berlin",
        name="nightly-report",
        missed="skip",
    )

    @outbox.listener("billing", on="order.placed", retry=PASSING)
    async def bill(event: Event[Any]) -> None:
        if event.payload["card"]["last4"] == "0002":
            raise CardDeclinedError(f"the bank declined order {event.payload['order_id']}")

    @outbox.listener("mailer", on=["order.*", "invoice.sent"], partitions=2, retry=PASSING)
    async def mail(event: Event[Any]) -> None:
        await anyio.sleep(random.uniform(0, 0.006))
        if event.payload.get("email", "").endswith(".invalid"):
            raise MailboxUnavailableError("550 5.1.1 no such user here")

    @outbox.listener("loyalty", on="order.paid")
    async def grant(event: Event[Any], session: AsyncOutboxSession) -> None:
        session.add_event("points.granted", event.payload, key=event.key)

    @outbox.listener("search_index", on="order.*")
    async def index(event: Event[Any]) -> None:
        pass

    @outbox.listener("exports", on="report.requested", order="none")
    async def export(event: Event[Any]) -> None:
        await anyio.sleep(0.02)

    @outbox.listener("warehouse", on="order.placed", order="total")
    async def ship(event: Event[Any]) -> None:
        await anyio.sleep(random.uniform(0.01, 0.05))

    return outbox


ENDPOINTS = """
INSERT INTO outbox_endpoints (name, url, settings, disabled_at, disabled_why) VALUES
    ('partner', 'https://hooks.example.com/orders?key=abc',
     '{"on": ["order.placed"], "where": {"currency": "EUR"}, "timeout": 9.0}', NULL, NULL),
    ('old-partner', 'https://old.example.com/in', '{"on": ["order.*"]}', now(), 'it answered 410')
"""
"""Two webhook endpoints, which nobody serves here."""

NAMES = ("ada", "grace", "barbara", "edsger", "katherine", "alan", "hedy", "donald")
TENANTS = ("northwind", "acme", "globex")


class Customers:
    """Who order, now more and now less."""

    def __init__(self, outbox: Outbox, engine: AsyncEngine, seed: int = 7) -> None:
        self._sessions = outbox.async_sessionmaker(engine)
        self._random = random.Random(seed)
        self._number = 1000

    async def order(self, several: int) -> None:
        draw = self._random
        async with self._sessions.begin() as session:
            for _ in range(several):
                self._number += 1
                name = draw.choice(NAMES)
                domain = "example.invalid" if draw.random() < 0.004 else "example.com"
                order = {
                    "order_id": self._number,
                    "customer": name.title(),
                    "email": f"{name}@{domain}",
                    "total": f"{draw.randint(900, 24900) / 100:.2f}",
                    "currency": "EUR",
                    "items": [{"sku": f"SKU-{draw.randint(100, 999)}", "quantity": 1}],
                    "card": {
                        "number": "4000 0000 0000 0002",
                        "last4": "0002" if draw.random() < 0.003 else "4242",
                    },
                }
                options: dict[str, Any] = {
                    "key": f"order-{self._number}",
                    "tenant": draw.choice(TENANTS),
                }
                session.add_event("order.placed", order, **options)
                if draw.random() < 0.6:
                    paid = {"order_id": self._number, "email": order["email"]}
                    session.add_event("order.paid", paid, **options)
                if draw.random() < 0.05:
                    options["delay"] = draw.choice((None, None, timedelta(hours=1)))
                    session.add_event("report.requested", {"order_id": self._number}, **options)

    async def keep_ordering(self) -> None:
        while True:
            for pace in (4, 9, 16, 22, 14, 7, 3, 12):
                for _ in range(20):
                    await self.order(self._random.randint(1, pace))
                    await anyio.sleep(0.12)
