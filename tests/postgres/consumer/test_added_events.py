"""Events that handlers add: part of their transaction, linked to their cause, never endless."""

from __future__ import annotations

from typing import Any

import pytest

from sa_outbox import AsyncOutboxSession, Event, Outbox, OutboxSession
from sa_outbox.observe import EventsAdded
from sa_outbox.settings import Limits, Notify
from tests.support import comes_true

from .conftest import ONCE, QUICK, Consuming, Database, Producer

pytestmark = [pytest.mark.anyio, pytest.mark.woken_by("notify")]


async def test_events_a_handler_adds_are_committed_with_its_effects(
    outbox: Outbox, producer: Producer, consuming: Consuming
) -> None:
    got: list[Event[Any]] = []

    @outbox.listener("billing", on="order.placed")
    async def charge(event: Event[Any], session: AsyncOutboxSession) -> None:
        session.add_event("order.paid", {"n": event.payload["n"]})

    @outbox.listener("mail", on="order.paid")
    async def write(event: Event[Any]) -> None:
        got.append(event)

    async with consuming(outbox) as running:
        with producer.open() as session:
            cause = session.add_event(
                "order.placed", {"n": 1}, headers={"correlation_id": "request 7"}
            )
        await running.done("mail")

    assert got[0].payload == {"n": 1}
    assert got[0].headers["causation_id"] == str(cause.event_id)
    assert got[0].headers["correlation_id"] == "request 7"


@pytest.mark.parametrize("order", ["key", "none"])
async def test_what_handlers_add_is_counted_when_their_transaction_is_committed(
    order: Any, outbox: Outbox, producer: Producer, consuming: Consuming
) -> None:
    """Several handlers share one transaction: the session of each is not what commits."""

    @outbox.listener("billing", on="order.placed", order=order, retry=ONCE)
    async def charge(event: Event[Any], session: AsyncOutboxSession) -> None:
        session.add_event("order.paid", {})
        if event.payload["n"] == 3:
            await session.flush()
            raise ValueError("after all")

    producer.add(*range(6), key="a")
    told: list[Any] = []
    outbox.observers.add(told.append)
    async with consuming(outbox) as running:
        await running.done("billing", 5)
        await running.dead("billing")

    assert sum(each.events["order.paid"] for each in told) == 5
    assert {type(each) for each in told} == {EventsAdded}


async def test_events_of_an_attempt_that_failed_are_never_delivered(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    @outbox.listener("billing", on="order.placed", retry=QUICK)
    async def charge(event: Event[Any], session: AsyncOutboxSession) -> None:
        session.add_event("order.paid", {"n": 1})
        await session.flush()
        raise ValueError("after all")

    producer.add(1)

    async with consuming(outbox) as running:
        await running.dead("billing")

    assert [row.event_type for row in database.rows("SELECT event_type FROM outbox")] == [
        "order.placed"
    ]


async def test_a_sync_handler_s_events_are_linked_to_their_cause(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    @outbox.listener("billing", on="order.placed")
    def charge(event: Event[Any], session: OutboxSession) -> None:
        session.add_event("order.paid", {"n": 1})

    producer.add(1)

    async with consuming(outbox) as running:
        await running.done("billing")

    cause, effect = database.rows("SELECT event_id, headers FROM outbox ORDER BY id")
    assert effect.headers["causation_id"] == str(cause.event_id)


async def test_a_loop_of_events_ends_as_a_dead_letter(
    notify: Notify, producer: Producer, database: Database, consuming: Consuming
) -> None:
    outbox = Outbox(notify=notify, limits=Limits(max_causation_depth=3))

    @outbox.listener("echo", on="order.*", retry=ONCE)
    async def echo(event: Event[Any], session: AsyncOutboxSession) -> None:
        session.add_event("order.placed", {"n": event.payload["n"] + 1})

    producer.add(0)

    async with consuming(outbox) as running:
        await running.dead("echo")

    assert len(database.rows("SELECT FROM outbox")) == 4
    [dead] = database.dead_letters("echo")
    assert (dead.payload, dead.errors[0]["code"]) == ('{"n": 3}', "causation-too-deep")


async def test_a_tree_of_events_ends_as_dead_letters_and_others_go_on(
    notify: Notify, producer: Producer, database: Database, consuming: Consuming
) -> None:
    """Ten events for each event: within the depth there would be 10 to the power of 100."""
    outbox = Outbox(notify=notify, limits=Limits(max_caused_events=35))

    @outbox.listener("echo", on="order.*", retry=ONCE)
    async def echo(event: Event[Any], session: AsyncOutboxSession) -> None:
        for number in range(event.payload["n"]):
            session.add_event("order.placed", {"n": event.payload["n"], "of": number})

    producer.add(10)
    async with consuming(outbox) as running:
        # Those of its ten events that fit are handled; those that they led to fail, and add none.
        await comes_true(lambda: len(database.dead_letters("echo")) == 28)
        producer.add(1)
        await running.dead("echo", 29)

    trees = database.rows(
        "SELECT split_part(headers ->> 'causation_tree', ':', 1) AS tree, count(*) AS events,"
        " max(split_part(headers ->> 'causation_tree', ':', 2)::int) AS largest"
        " FROM outbox WHERE headers ? 'causation_tree' GROUP BY 1 ORDER BY 2"
    )
    assert [each.events for each in trees] == [30, 35]
    codes = {each.errors[0]["code"] for each in database.dead_letters("echo")}
    assert codes == {"causation-too-wide"}
