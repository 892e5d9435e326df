"""Where a listener begins that the database does not know."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from sa_outbox import Event, Outbox
from sa_outbox.declare.listener import Start
from sa_outbox.observe import ListenerRegistered

from .conftest import Consuming, Database, Producer

pytestmark = [pytest.mark.anyio, pytest.mark.woken_by("notify")]


def listen(outbox: Outbox, start: Start) -> list[int]:
    got: list[int] = []

    @outbox.listener("billing", on="order.*", start=start)
    async def charge(event: Event[Any]) -> None:
        got.append(event.payload["n"])

    return got


async def test_from_the_beginning(outbox: Outbox, producer: Producer, consuming: Consuming) -> None:
    got = listen(outbox, "beginning")
    producer.add(1, 2)

    async with consuming(outbox) as running:
        await running.consumer.drain()

    assert got == [1, 2]


async def test_from_now(outbox: Outbox, producer: Producer, consuming: Consuming) -> None:
    got = listen(outbox, "now")
    producer.add(1, 2)

    async with consuming(outbox) as running:
        producer.add(3)
        await running.consumer.drain()

    assert got == [3]


async def test_from_now_on_an_empty_log(
    outbox: Outbox, producer: Producer, consuming: Consuming
) -> None:
    got = listen(outbox, "now")

    async with consuming(outbox) as running:
        producer.add(1)
        await running.consumer.drain()

    assert got == [1]


async def test_from_now_waits_for_events_that_are_being_written(
    outbox: Outbox, producer: Producer, consuming: Consuming
) -> None:
    got = listen(outbox, "now")
    producer.add(1)
    with producer.open() as writer:
        writer.add_event("order.placed", {"n": 2})
        writer.flush()
        producer.add(3)

        async with consuming(outbox) as running:
            [registered] = await running.recorder.seen(ListenerRegistered)
            writer.commit()
            await running.done("billing")

    assert registered.position == 3
    assert got == [2]


async def test_from_an_id(outbox: Outbox, producer: Producer, consuming: Consuming) -> None:
    got = listen(outbox, 3)
    producer.add(1, 2, 3, 4)

    async with consuming(outbox) as running:
        await running.consumer.drain()

    assert got == [3, 4]


async def test_from_a_time(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    producer.add(1)
    got = listen(outbox, database.value("SELECT clock_timestamp()"))
    producer.add(2)

    async with consuming(outbox) as running:
        await running.consumer.drain()

    assert got == [2]


async def test_from_a_time_that_is_yet_to_come_is_from_now(
    outbox: Outbox, producer: Producer, consuming: Consuming
) -> None:
    got = listen(outbox, datetime(2999, 1, 1, tzinfo=UTC))
    producer.add(1)

    async with consuming(outbox) as running:
        producer.add(2)
        await running.consumer.drain()

    assert got == [2]


async def test_from_a_time_waits_for_events_that_are_being_written(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    producer.add(1)
    got = listen(outbox, database.value("SELECT clock_timestamp()"))
    with producer.open() as writer:
        writer.add_event("order.placed", {"n": 2})
        writer.flush()
        producer.add(3)

        async with consuming(outbox) as running:
            await running.done("billing")
            writer.commit()
            await running.done("billing", 2)

    assert sorted(got) == [2, 3]


async def test_where_it_begins_counts_only_once(
    outbox: Outbox, producer: Producer, consuming: Consuming
) -> None:
    got = listen(outbox, "now")
    async with consuming(outbox):
        pass
    producer.add(1)

    async with consuming(outbox) as running:
        await running.consumer.drain()

    assert got == [1]
