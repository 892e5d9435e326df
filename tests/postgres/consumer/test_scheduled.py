"""Events with a time: not before it, and nobody waits for them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from sa_outbox import Event, Outbox
from tests.support import comes_true

from .conftest import QUICK, Consuming, Database, Producer

pytestmark = pytest.mark.anyio

SOON = timedelta(milliseconds=300)
LOOKS_AGAIN: Any = {"lease_duration": timedelta(seconds=3)}
"""A third of it is how often it is asked what is due, for those whose time was changed by hand."""
BOTH_ORDERS = pytest.mark.parametrize("order", ["total", "key"])


@BOTH_ORDERS
async def test_an_event_is_not_delivered_before_its_time_and_is_delivered_after(
    order: Any, outbox: Outbox, producer: Producer, consuming: Consuming
) -> None:
    at: list[datetime] = []
    events: list[Event[Any]] = []

    @outbox.listener("billing", on="order.*", order=order)
    async def charge(event: Event[Any]) -> None:
        at.append(datetime.now(UTC))
        events.append(event)

    producer.add(1, run_at=datetime.now(UTC) + SOON)
    began = monotonic()

    async with consuming(outbox) as running:
        await running.done("billing")

    [event] = events
    assert event.run_at is not None
    assert at[0] >= event.run_at
    assert monotonic() - began < 3


@BOTH_ORDERS
async def test_later_events_do_not_wait_for_it(
    order: Any, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    got: list[int] = []

    @outbox.listener("billing", on="order.*", order=order)
    async def charge(event: Event[Any]) -> None:
        got.append(event.payload["n"])

    async with consuming(outbox, **LOOKS_AGAIN) as running:
        producer.add(1, key="a", delay=timedelta(hours=1))
        producer.add(2, key="a")
        await running.done("billing")
        assert (got, database.listener("billing").last_processed_id) == ([2], 2)
        await comes_true(lambda: len(database.deliveries("billing")) == 1)
        database.rows("UPDATE outbox_deliveries SET due_at = clock_timestamp()")
        await running.done("billing", 2)

    assert got == [2, 1]
    assert database.deliveries("billing") == []


async def test_a_time_that_has_passed_is_now(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    got: list[int] = []

    @outbox.listener("billing", on="order.*")
    async def charge(event: Event[Any]) -> None:
        got.append(event.payload["n"])

    producer.add(1, key="a", run_at=datetime.now(UTC) - timedelta(days=1))
    producer.add(2, key="a")

    async with consuming(outbox) as running:
        await running.done("billing", 2)

    assert got == [1, 2]


@BOTH_ORDERS
async def test_a_scheduled_event_that_fails_holds_nobody_up(
    order: Any, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    got: list[int] = []

    @outbox.listener("billing", on="order.*", order=order, retry=QUICK)
    async def charge(event: Event[Any]) -> None:
        if event.payload["n"] == 1:
            raise ValueError("not this one")
        got.append(event.payload["n"])

    async with consuming(outbox) as running:
        producer.add(1, key="a", delay=timedelta(milliseconds=10))
        await running.settled("billing", outcome="retry")
        producer.add(2, key="a")
        await running.done("billing")
        await running.dead("billing")

    [dead] = database.dead_letters("billing")
    assert (dead.position, dead.attempts, len(dead.errors)) == (1, 3, 3)


async def test_a_scheduled_event_has_its_effect_once(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    @outbox.listener("billing", on="order.*")
    async def charge(event: Event[Any], session: AsyncSession) -> None:
        values = {"n": event.payload["n"]}
        await session.execute(text("INSERT INTO effects VALUES ('billing', :n)"), values)

    producer.add(*range(10), delay=timedelta(milliseconds=50))

    async with consuming(outbox) as running:
        await running.done("billing", 10)

    assert database.effects("billing") == list(range(10))


async def test_it_is_delivered_by_the_next_consumer_if_it_becomes_due_then(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    got: list[int] = []

    @outbox.listener("billing", on="order.*")
    async def charge(event: Event[Any]) -> None:
        got.append(event.payload["n"])

    producer.add(1, delay=timedelta(hours=1))
    async with consuming(outbox) as running:
        await running.consumer.drain()
    database.rows("UPDATE outbox_deliveries SET due_at = clock_timestamp()")

    async with consuming(outbox) as running:
        await running.done("billing")

    assert got == [1]
