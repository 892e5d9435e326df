"""Rows of the log that no session wrote: one event fails, never its batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from sa_outbox import Event, Outbox, event_type, upcaster
from tests.support.shop import OrderPlaced

from .conftest import ONCE, Consuming, Database, Producer

pytestmark = [pytest.mark.anyio, pytest.mark.matrix, pytest.mark.woken_by("poll")]

NESTED = "(repeat('[', 3000) || repeat(']', 3000))::jsonb"
ROWS = {
    "nested 3000 deep": {"payload": NESTED},
    "an integer of 100,000 digits": {
        "payload": "('{\"n\": 1' || repeat('0', 99999) || '}')::jsonb"
    },
    "headers that are a list": {"headers": "'[]'"},
    "headers that are null": {"headers": "'null'"},
    "headers nested 3000 deep": {"headers": NESTED},
    "a newer version": {
        "event_type": "'shop.order_placed'",
        "payload": "'{\"order_id\": 1}'",
        "headers": "'{\"version\": 2}'",
    },
    "another shape": {"event_type": "'shop.order_placed'", "payload": '\'{"order_id": "x"}\''},
    "no shape at all": {"event_type": "'shop.order_placed'", "payload": "'[]'"},
    "written before time": {"created_at": "'-infinity'"},
    "to be run before time": {"run_at": "'-infinity'"},
    "written in the year 20,000": {"created_at": "'20000-01-01'"},
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
@pytest.mark.parametrize("order", ["total", "key"])
async def test_an_event_that_can_not_be_read_is_a_dead_letter_and_the_others_are_delivered(
    row: dict[str, str],
    order: Any,
    outbox: Outbox,
    producer: Producer,
    unchecked: Database,
    consuming: Consuming,
) -> None:
    got: list[int] = []

    @outbox.listener("billing", on=("order.*", "shop.*"), order=order, retry=ONCE)
    async def charge(event: Event[Any], session: AsyncSession) -> None:
        got.append(event.payload["n"])

    producer.add(1, key="a")
    unchecked.write_raw(**row)
    producer.add(2, key="a")

    async with consuming(outbox) as running:
        await running.dead("billing")
        await running.done("billing", 2)

    assert got == [1, 2]
    [dead] = unchecked.dead_letters("billing")
    assert (dead.position, len(dead.errors)) == (2, 1)


@pytest.mark.parametrize("run_at", ["'infinity'", "'294270-01-01'"])
async def test_an_event_that_is_never_due_stops_nobody(
    run_at: str, outbox: Outbox, producer: Producer, unchecked: Database, consuming: Consuming
) -> None:
    got: list[int] = []

    @outbox.listener("billing", on="order.*", retry=ONCE)
    async def charge(event: Event[Any]) -> None:
        got.append(event.payload["n"])

    producer.add(1)
    unchecked.write_raw(run_at=run_at)
    producer.add(2)

    async with consuming(outbox) as running:
        await running.done("billing", 2)

    assert got == [1, 2]


async def test_a_payload_that_does_not_fit_the_handler_s_annotation_fails_the_event(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    @outbox.listener("billing", on="order.*", retry=ONCE)
    async def charge(event: Event[OrderPlaced]) -> None: ...

    producer.add(1)

    async with consuming(outbox) as running:
        await running.dead("billing")

    [dead] = database.dead_letters("billing")
    assert dead.errors[0]["code"] == "decode"


async def test_a_plain_handler_fails_when_it_reads_what_can_not_be_read(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    got: list[int] = []

    @outbox.listener("billing", on="order.*", retry=ONCE)
    async def charge(event: Event[Any]) -> None:
        got.append(event.payload["n"])

    @outbox.listener("counting", on="order.*", retry=ONCE)
    async def count(event: Event[Any]) -> None: ...

    producer.add(1)
    database.write_raw(payload=NESTED)
    producer.add(2)

    async with consuming(outbox) as running:
        await running.dead("billing")
        await running.done("billing", 2)
        await running.done("counting", 3)

    assert got == [1, 2]
    [dead] = database.dead_letters("billing")
    assert dead.errors[0]["code"] == "decode"


@pytest.mark.parametrize(
    "row", [{"payload": NESTED}, {"headers": f"jsonb_build_object('a', {NESTED})"}]
)
async def test_an_event_of_a_batch_that_can_not_be_read_fails_alone(
    row: dict[str, str],
    outbox: Outbox,
    producer: Producer,
    unchecked: Database,
    consuming: Consuming,
) -> None:
    batches: list[list[int | None]] = []

    @outbox.listener("billing", on="order.*", retry=ONCE)
    async def charge(events: Sequence[Event[Any]]) -> None:
        batches.append([event.position for event in events])

    producer.add(1)
    unchecked.write_raw(**row)
    producer.add(2)

    async with consuming(outbox) as running:
        await running.dead("billing")
        await running.done("billing", 2)

    assert batches == [[1, 3]]
    [dead] = unchecked.dead_letters("billing")
    assert dead.errors[0]["code"] == "decode"


class Rare(BaseException):
    """Not an Exception."""


@event_type("order.upcast", version=2)
@dataclass(frozen=True)
class Upcast:
    n: int


@upcaster("order.upcast", since=1)
def refuse(payload: Any) -> Any:
    raise Rare


async def test_an_upcaster_may_raise_anything(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    @outbox.listener("billing", on="order.*", retry=ONCE)
    async def charge(event: Event[Any]) -> None: ...

    database.write_raw(event_type="'order.upcast'", payload="'{\"n\": 1}'")
    producer.add(2)

    async with consuming(outbox) as running:
        await running.dead("billing")
        await running.done("billing")


async def test_an_unreadable_event_of_another_type_is_passed_by(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    @outbox.listener("billing", on="order.placed")
    async def charge(event: Event[Any]) -> None: ...

    database.write_raw(event_type="'other'", payload=NESTED, headers="'[]'")
    producer.add(1)

    async with consuming(outbox) as running:
        await running.done("billing")

    assert database.dead_letters("billing") == []
