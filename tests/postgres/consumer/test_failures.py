"""A handler that fails: another attempt, later, or a dead letter."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from sa_outbox import Event, Outbox, Reject, RetryLater, RetryPolicy
from sa_outbox.observe import AttemptFailed, DeadLettered

from .conftest import LATER, ONCE, QUICK, Consuming, Database, Producer

pytestmark = [pytest.mark.anyio, pytest.mark.woken_by("notify")]

BOTH_ORDERS = pytest.mark.parametrize("order", ["total", "key"])


@BOTH_ORDERS
async def test_an_event_that_failed_is_attempted_until_it_is_done(
    order: Any, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    attempts: list[int] = []

    @outbox.listener("billing", on="order.*", order=order, retry=QUICK)
    async def charge(event: Event[Any]) -> None:
        attempts.append(event.payload["n"])
        if len(attempts) < 3:
            raise ValueError("not yet")

    producer.add(1, key="a")

    async with consuming(outbox) as running:
        await running.settled("billing", outcome="done", attempt=3)

    assert attempts == [1, 1, 1]
    assert (database.deliveries("billing"), database.dead_letters("billing")) == ([], [])


@BOTH_ORDERS
async def test_the_waits_between_attempts_are_those_of_the_policy(
    order: Any, outbox: Outbox, producer: Producer, consuming: Consuming
) -> None:
    schedule = tuple(timedelta(milliseconds=each) for each in (10, 30, 20))

    @outbox.listener("billing", on="order.*", order=order, retry=RetryPolicy(schedule=schedule))
    async def charge(event: Event[Any]) -> None:
        raise ValueError("never")

    producer.add(1, key="a")

    async with consuming(outbox) as running:
        await running.dead("billing")

    failed = running.recorder.of(AttemptFailed)
    assert [each.retry_in for each in failed] == [0.01, 0.03, 0.02, None]


@BOTH_ORDERS
async def test_a_dead_letter_has_every_attempt_s_error_and_the_event_s_copy(
    order: Any, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    attempts: list[int] = []

    @outbox.listener("billing", on="order.*", order=order, retry=QUICK)
    async def charge(event: Event[Any]) -> None:
        attempts.append(1)
        raise ValueError(f"error {len(attempts)}")

    with producer.open() as session:
        added = session.add_event(
            "order.placed",
            {"n": 1},
            key="a",
            tenant="acme",
            headers={"request_id": "r"},
            priority=2,
        )

    async with consuming(outbox) as running:
        await running.dead("billing")

    [dead] = database.dead_letters("billing")
    assert (dead.reason, dead.attempts, dead.crashes, dead.resolution) == ("attempts", 3, 0, None)
    assert [(each["attempt"], each["error"], each["message"]) for each in dead.errors] == [
        (1, "ValueError", "error 1"),
        (2, "ValueError", "error 2"),
        (3, "ValueError", "error 3"),
    ]
    assert sorted(each["at"] for each in dead.errors) == [each["at"] for each in dead.errors]
    assert (dead.event_id, dead.position, dead.event_type) == (added.event_id, 1, "order.placed")
    assert (dead.key, dead.tenant, dead.payload, dead.priority) == ("a", "acme", '{"n": 1}', 2)
    assert json.loads(dead.headers)["request_id"] == "r"
    assert database.deliveries("billing") == []


@BOTH_ORDERS
async def test_reject_makes_a_dead_letter_at_once(
    order: Any, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    @outbox.listener("billing", on="order.*", order=order)
    async def charge(event: Event[Any]) -> None:
        if event.payload["n"] == 1:
            raise Reject("no such customer")

    producer.add(1, 2, key="a")

    async with consuming(outbox) as running:
        await running.dead("billing")
        await running.done("billing")

    [dead] = database.dead_letters("billing")
    assert (dead.reason, dead.attempts, dead.payload) == ("rejected", 1, '{"n": 1}')
    assert (dead.errors[0]["code"], dead.errors[0]["message"]) == ("reject", "no such customer")


@BOTH_ORDERS
async def test_an_error_that_is_final_makes_a_dead_letter_at_once(
    order: Any, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    policy = RetryPolicy(attempts=5, final_on=(LookupError,))

    @outbox.listener("billing", on="order.*", order=order, retry=policy)
    async def charge(event: Event[Any]) -> None:
        raise KeyError("no such customer")

    producer.add(1)

    async with consuming(outbox) as running:
        [told] = await running.recorder.seen(DeadLettered)

    assert (told.reason, told.attempts) == ("final", 1)
    assert database.dead_letters("billing")[0].reason == "final"


@BOTH_ORDERS
async def test_retry_later_says_when(
    order: Any, outbox: Outbox, producer: Producer, consuming: Consuming
) -> None:
    attempts: list[int] = []

    @outbox.listener("billing", on="order.*", order=order)
    async def charge(event: Event[Any]) -> None:
        attempts.append(1)
        if len(attempts) < 3:
            raise RetryLater("busy", delay=timedelta(milliseconds=15))

    producer.add(1)

    async with consuming(outbox) as running:
        await running.done("billing")

    assert [each.retry_in for each in running.recorder.of(AttemptFailed)] == [0.015, 0.015]


async def test_retry_later_counts_as_an_attempt(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    @outbox.listener("billing", on="order.*", retry=QUICK)
    async def charge(event: Event[Any]) -> None:
        raise RetryLater("busy", delay=timedelta(0))

    producer.add(1)

    async with consuming(outbox) as running:
        await running.dead("billing")

    assert database.dead_letters("billing")[0].attempts == 3


async def test_an_event_without_a_key_that_fails_blocks_nobody(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    got: list[int] = []

    @outbox.listener("billing", on="order.*", retry=LATER)
    async def charge(event: Event[Any]) -> None:
        if event.payload["n"] == 1:
            raise ValueError("not this one")
        got.append(event.payload["n"])

    async with consuming(outbox) as running:
        producer.add(1, 2)
        producer.add(3)
        await running.done("billing", 2)

    assert got == [2, 3]
    assert [row.position for row in database.deliveries("billing")] == [1]


async def test_a_listener_that_fails_holds_nobody_else_up(
    outbox: Outbox, producer: Producer, consuming: Consuming
) -> None:
    @outbox.listener("broken", on="order.*", order="total", retry=LATER)
    async def fail(event: Event[Any]) -> None:
        raise ValueError("always")

    @outbox.listener("billing", on="order.*", order="total")
    async def charge(event: Event[Any]) -> None: ...

    async with consuming(outbox) as running:
        producer.add(1, 2, 3)
        await running.settled("broken", outcome="retry")
        producer.add(4)
        await running.done("billing", 4)

    assert len(running.recorder.of(AttemptFailed)) == 1


async def test_every_attempt_gets_an_event_nobody_has_touched(
    outbox: Outbox, producer: Producer, consuming: Consuming
) -> None:
    got: list[Any] = []

    @outbox.listener("billing", on="order.*", retry=QUICK)
    async def charge(event: Event[Any]) -> None:
        got.append(dict(event.payload))
        event.payload.clear()
        if len(got) < 3:
            raise ValueError("not yet")

    producer.add(1)

    async with consuming(outbox) as running:
        await running.done("billing")

    assert got == [{"n": 1}] * 3


async def test_listeners_do_not_share_the_event_they_get(
    outbox: Outbox, producer: Producer, consuming: Consuming
) -> None:
    got: list[Any] = []

    for name in ("billing", "mail"):

        @outbox.listener(name, on="order.*")
        async def change(event: Event[Any]) -> None:
            got.append(dict(event.payload))
            event.payload.clear()

    producer.add(1)

    async with consuming(outbox) as running:
        await running.done("billing")
        await running.done("mail")

    assert got == [{"n": 1}] * 2


async def test_the_listener_s_row_tells_its_last_error(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    @outbox.listener("billing", on="order.*", order="total", retry=ONCE)
    async def charge(event: Event[Any]) -> None:
        raise ValueError("look at me")

    producer.add(1)

    async with consuming(outbox) as running:
        await running.dead("billing")

    assert database.listener("billing").last_error == "look at me"
