"""A consumer that is watched: what waits, what was done, and that a broken view stops nothing."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from sa_outbox import Event, Outbox
from sa_outbox.monitoring import Health, Metrics, prometheus
from sa_outbox.observe import BacklogMeasured, DatabaseAway, LeasesKept, Notified, Place

from .conftest import LATER, ONCE, Consuming, Database, Producer

pytestmark = [pytest.mark.anyio, pytest.mark.woken_by("notify")]

OFTEN = timedelta(milliseconds=50)


async def test_what_waits_is_measured_for_whoever_wants_it(
    outbox: Outbox, producer: Producer, consuming: Consuming
) -> None:
    @outbox.listener("billing", on="order.placed", retry=ONCE)
    async def bill(event: Event[Any]) -> None:
        raise ValueError

    @outbox.listener("mailing", on="order.placed", retry=LATER)
    async def mail(event: Event[Any]) -> None:
        raise ValueError

    producer.add(1, 2, key="a")
    metrics = Metrics(outbox)
    registry = prometheus.register(metrics)
    async with consuming(outbox, measure_interval=OFTEN) as running:
        running.consumer.observers.add(metrics)
        await running.recorder.seen(BacklogMeasured, listener="billing", dead_letters=2, events=0)
        await running.recorder.seen(BacklogMeasured, listener="mailing", parked=1, behind=1)

        def value(name: str, **labels: str) -> float | None:
            return registry.get_sample_value(f"sa_outbox_{name}", labels)

        assert value("open_dead_letters", listener="billing") == 2
        assert value("waiting_deliveries", listener="mailing", state="parked") == 1
        dead = {"listener": "billing", "event_type": "order.placed", "outcome": "dead"}
        assert value("deliveries_settled_total", **dead) == 2
        assert value("consumer_running") == 0, "it was added after the start"


async def test_nobody_is_asked_if_nobody_wants_it_and_a_refusal_stops_nothing(
    outbox: Outbox, producer: Producer, consuming: Consuming, database: Database
) -> None:
    @outbox.listener("billing", on="order.placed")
    async def bill(event: Event[Any]) -> None: ...

    async with consuming(outbox, measure_interval=OFTEN) as running:
        producer.add(1)
        await running.done("billing")
        assert running.recorder.of(BacklogMeasured) == []

        running.consumer.observers.add(Metrics(outbox))
        await running.recorder.seen(BacklogMeasured)
        database.rows("ALTER TABLE outbox_dead_letters RENAME TO hidden")
        try:
            await running.recorder.seen(DatabaseAway, where=Place("measuring"))
            producer.add(2)
            await running.done("billing", 2)
        finally:
            database.rows("ALTER TABLE hidden RENAME TO outbox_dead_letters")
        running.recorder.forget()
        await running.recorder.seen(BacklogMeasured)


@pytest.mark.woken_by("notify", "poll")
async def test_leases_and_notifications_are_told(
    outbox: Outbox, producer: Producer, consuming: Consuming
) -> None:
    @outbox.listener("billing", on="order.placed")
    async def bill(event: Event[Any]) -> None: ...

    @outbox.listener("sorting", on="order.placed", order="none")
    async def sort(event: Event[Any]) -> None: ...

    async with consuming(outbox, lease_duration=timedelta(seconds=2)) as running:
        health = Health(running.consumer.settings)
        running.consumer.observers.add(health)
        await running.listening()
        producer.add(1)
        await running.done("billing")
        await running.done("sorting")
        if outbox.settings.notifies:
            await running.recorder.seen(Notified, of="events")
        (kept, *_) = await running.recorder.seen(LeasesKept)
        assert kept.listeners == ("billing",)
