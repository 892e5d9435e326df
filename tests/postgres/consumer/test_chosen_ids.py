"""Ids that somebody chose (``OVERRIDING SYSTEM VALUE``, COPY) move no cursor past later events."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from sa_outbox import Event, Outbox
from sa_outbox.consumer.services import horizon_reader
from sa_outbox.observe import IdsNotDrawn
from sa_outbox.operations.listeners import skip_listener
from sa_outbox.operations.operator import Operator
from sa_outbox.policy.order import Order

from .conftest import Consuming, Database, Producer, make_consumer

pytestmark = [pytest.mark.anyio, pytest.mark.woken_by("notify")]
FAR = 1_000_000_000_000
orders = pytest.mark.parametrize("order", ["key", "total", "none"])


@pytest.fixture(autouse=True)
def told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(horizon_reader, "HELD_AFTER_SECONDS", 0.05)


def listen(outbox: Outbox, order: Order, **options: Any) -> list[int]:
    got: list[int] = []

    @outbox.listener("billing", on="order.*", order=order, **options)
    async def charge(event: Event[Any]) -> None:
        got.append(event.payload["n"])

    return got


def choose(database: Database, id_: int, n: int = 99, priority: int = 0) -> None:
    database.rows(
        "INSERT INTO outbox (id, event_id, event_type, payload, priority) OVERRIDING SYSTEM VALUE"
        f""" VALUES ({id_}, gen_random_uuid(), 'order.placed', '{{"n"\\: {n}}}', {priority})"""
    )


def drawn(database: Database) -> int:
    last: int = database.value("SELECT last_value FROM outbox_id_seq")
    return last


@orders
@pytest.mark.parametrize("priority", [0, 5], ids=["ordinary", "urgent"])
async def test_later_events_are_delivered_and_the_chosen_id_is_told_of(
    outbox: Outbox,
    producer: Producer,
    database: Database,
    consuming: Consuming,
    order: Order,
    priority: int,
) -> None:
    got = listen(outbox, order)

    async with consuming(outbox) as running:
        producer.add(1)
        await running.done("billing")
        choose(database, FAR, priority=priority)
        producer.add(2, 3)
        await running.done("billing", 3)
        producer.add(4)
        await running.done("billing", 4)
        told = await running.recorder.seen(IdsNotDrawn)
        await running.consumer.drain()

    assert sorted(got) == [1, 2, 3, 4]
    assert (told[0].first, told[0].last, told[0].count) == (FAR, FAR, 1)
    assert database.listener("billing").last_processed_id <= drawn(database)


@orders
async def test_ids_that_follow_the_last_one_are_left_alone_too(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming, order: Order
) -> None:
    """Without a hole before them, they would need no look at the horizon."""
    got = listen(outbox, order)

    async with consuming(outbox) as running:
        producer.add(1)
        await running.done("billing")
        await running.listening()
        last = drawn(database)
        choose(database, last + 1, n=98)
        choose(database, last + 2, n=99)
        if outbox.settings.notifies:
            database.rows("NOTIFY outbox")
        await running.recorder.seen(IdsNotDrawn, count=2)
        await running.consumer.drain()
        assert got == [1]
        assert database.listener("billing").last_processed_id <= last
        database.rows("DELETE FROM outbox WHERE id > :last", last=last)
        producer.add(2)
        await running.done("billing", 2)

    assert got == [1, 2]


@orders
async def test_a_consumer_starts_beside_a_chosen_id_and_a_new_listener_begins_below_it(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming, order: Order
) -> None:
    producer.add(1)
    choose(database, FAR)
    got = listen(outbox, order, start="now")

    async with consuming(outbox) as running:
        await running.listening()
        producer.add(2)
        await running.done("billing")

    assert got == [2]


async def test_a_listener_that_begins_at_a_time_does_not_begin_at_a_chosen_id(
    outbox: Outbox, producer: Producer, database: Database, async_engine: AsyncEngine
) -> None:
    producer.add(1)
    since = datetime.now(UTC) + timedelta(minutes=1)
    choose(database, FAR)
    database.rows(
        "UPDATE outbox SET created_at = clock_timestamp() + interval '1 hour' WHERE id = :id",
        id=FAR,
    )
    got = listen(outbox, "key", start=since)
    consumer, _ = make_consumer(outbox, async_engine)

    await consumer.drain()
    producer.add(2)
    await consumer.drain()

    assert got == [2]


async def test_what_the_sequence_has_reached_is_delivered(
    outbox: Outbox, producer: Producer, database: Database, async_engine: AsyncEngine
) -> None:
    """As after a restore whose sequence is set afterwards."""
    got = listen(outbox, "key")
    producer.add(1)
    choose(database, 50, n=2)
    consumer, _ = make_consumer(outbox, async_engine)

    await consumer.drain()
    assert got == [1]
    database.rows("SELECT setval('outbox_id_seq', 51, false)")  # 51 comes next: 50 was drawn
    await consumer.drain()
    producer.add(3)
    await consumer.drain()

    assert got == [1, 2, 3]


async def test_an_operator_who_skips_to_now_skips_no_event_to_come(
    outbox: Outbox, producer: Producer, database: Database, async_engine: AsyncEngine
) -> None:
    got = listen(outbox, "key")
    consumer, _ = make_consumer(outbox, async_engine)
    await consumer.drain()
    producer.add(1)
    choose(database, FAR)

    with database.engine.begin() as connection:
        operator = Operator(who="tester", why="test")
        skip_listener(connection, outbox.tables, "billing", operator, to="now")
    producer.add(2)
    await consumer.drain()

    assert got == [2]
