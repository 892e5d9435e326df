"""A handler of batches that fails because of one event."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from sa_outbox import Event, Outbox

from .conftest import ONCE, QUICK, Consuming, Database, Producer

pytestmark = [pytest.mark.anyio, pytest.mark.woken_by("notify")]

EFFECT = text("INSERT INTO effects VALUES ('billing', :n)")
ORDERS = pytest.mark.parametrize(
    ("order", "key"), [("total", None), ("key", None), ("key", "one for all")]
)


@ORDERS
async def test_the_others_are_done_once_and_the_one_is_a_dead_letter(
    order: Any,
    key: str | None,
    outbox: Outbox,
    producer: Producer,
    database: Database,
    consuming: Consuming,
) -> None:
    @outbox.listener("billing", on="order.*", order=order, retry=QUICK)
    async def charge(events: Sequence[Event[Any]], session: AsyncSession) -> None:
        for event in events:
            await session.execute(EFFECT, {"n": event.payload["n"]})
            if event.payload["n"] == 37:
                raise ValueError("not this one")

    producer.add(*range(60), key=key)

    async with consuming(outbox) as running:
        await running.dead("billing")
        await running.done("billing", 59)

    assert database.effects("billing") == [n for n in range(60) if n != 37]
    [dead] = database.dead_letters("billing")
    assert (dead.payload, dead.attempts, len(dead.errors)) == ('{"n": 37}', 3, 3)


@ORDERS
async def test_a_batch_that_failed_is_attempted_one_by_one_in_order(
    order: Any, key: str | None, outbox: Outbox, producer: Producer, consuming: Consuming
) -> None:
    calls: list[list[int]] = []

    @outbox.listener("billing", on="order.*", order=order, retry=QUICK)
    async def charge(events: Sequence[Event[Any]]) -> None:
        calls.append([event.payload["n"] for event in events])
        if len(calls) == 1:
            raise ValueError("at first")

    producer.add(*range(5), key=key)

    async with consuming(outbox) as running:
        await running.done("billing", 5)

    assert calls[0] == [0, 1, 2, 3, 4]
    assert calls[1:] == [[0], [1], [2], [3], [4]]


async def test_the_failure_of_the_whole_batch_counts_as_no_event_s_attempt(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    @outbox.listener("billing", on="order.*", retry=ONCE)
    async def charge(events: Sequence[Event[Any]]) -> None:
        if len(events) > 1:
            raise ValueError("too many")

    producer.add(*range(5))

    async with consuming(outbox) as running:
        await running.done("billing", 5)

    assert database.dead_letters("billing") == []


async def test_key_order_holds_through_a_failing_batch(
    outbox: Outbox, producer: Producer, consuming: Consuming
) -> None:
    done: list[tuple[str | None, int]] = []

    @outbox.listener("billing", on="order.*", retry=QUICK, batch_size=16, concurrency=2)
    async def charge(events: Sequence[Event[Any]]) -> None:
        if any(event.payload["n"] % 13 == 5 for event in events):
            raise ValueError("not this one")
        done.extend((event.key, event.payload["n"]) for event in events)

    for n in range(60):
        # Keys that look like positions: a lane is not to be taken for another.
        producer.add(n, key=str(n % 4 + 1) if n % 5 else None)

    async with consuming(outbox) as running:
        await running.dead("billing", 5)
        await running.done("billing", 55)

    assert max(Counter(done).values()) == 1
    for key in "1234":
        numbers = [n for other, n in done if other == key]
        assert numbers == sorted(numbers)


@ORDERS
async def test_an_event_that_can_not_be_read_fails_alone(
    order: Any,
    key: str | None,
    outbox: Outbox,
    producer: Producer,
    database: Database,
    consuming: Consuming,
) -> None:
    got: list[int] = []

    @outbox.listener("billing", on="order.*", order=order, retry=QUICK)
    async def charge(events: Sequence[Event[Any]]) -> None:
        got.extend(event.payload["n"] for event in events)

    producer.add(1, 2, key=key)
    database.write_raw(headers="'[]'", key="NULL" if key is None else f"'{key}'")
    producer.add(3, 4, key=key)

    async with consuming(outbox) as running:
        await running.dead("billing")
        await running.done("billing", 4)

    assert sorted(got) == [1, 2, 3, 4]
    assert [each.position for each in database.dead_letters("billing")] == [3]
