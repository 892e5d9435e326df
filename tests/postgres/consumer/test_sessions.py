"""Handlers with a session: what they do in it, and the cursor, are one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from sa_outbox import AsyncOutboxSession, Event, Outbox
from sa_outbox.settings import Limits, Notify
from tests.support.shop import Order

from .conftest import ONCE, QUICK, Consuming, Database, Producer

pytestmark = pytest.mark.anyio

EFFECT = text("INSERT INTO effects VALUES (:listener, :n)")


async def test_effect_and_cursor_are_committed_together(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    """Each moment before the end there is neither of them, each moment after it there are both."""
    seen: list[tuple[int, int]] = []

    @outbox.listener("billing", on="order.*", order="total")
    async def charge(event: Event[Any], session: AsyncSession) -> None:
        await session.execute(EFFECT, {"listener": "billing", "n": event.payload["n"]})
        cursor = database.listener("billing").last_processed_id
        seen.append((len(database.effects("billing")), cursor))

    producer.add(1, 2, 3)

    async with consuming(outbox) as running:
        await running.done("billing", 3)

    assert seen == [(0, 0), (1, 1), (2, 2)]
    assert database.effects("billing") == [1, 2, 3]
    assert database.listener("billing").last_processed_id == 3


async def test_entities_are_flushed_and_committed(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    @outbox.listener("billing", on="order.*")
    async def charge(event: Event[Any], session: AsyncSession) -> None:
        session.add(Order(name=f"order {event.payload['n']}"))

    producer.add(1)

    async with consuming(outbox) as running:
        await running.done("billing")

    assert database.value("SELECT name FROM orders") == "order 1"


async def test_an_entity_that_can_not_be_flushed_fails_the_attempt(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    @outbox.listener("billing", on="order.*", retry=ONCE)
    async def charge(event: Event[Any], session: AsyncSession) -> None:
        session.add_all([Order(name="same"), Order(name="same")])

    producer.add(1)

    async with consuming(outbox) as running:
        await running.dead("billing")

    [dead] = database.dead_letters("billing")
    assert dead.errors[0]["error"] == "sqlalchemy.exc.IntegrityError"


@pytest.mark.parametrize("order", ["total", "key"])
async def test_a_handler_that_raises_leaves_nothing(
    order: Any, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    attempts: list[int] = []

    @outbox.listener("billing", on="order.*", order=order, retry=QUICK)
    async def charge(event: Event[Any], session: AsyncSession) -> None:
        await session.execute(EFFECT, {"listener": "billing", "n": event.payload["n"]})
        attempts.append(len(database.effects("billing")))
        if len(attempts) < 3:
            raise ValueError("after the effect")

    producer.add(1, key="a")

    async with consuming(outbox) as running:
        await running.done("billing")

    assert attempts == [0, 0, 0]
    assert database.effects("billing") == [1]


async def test_a_constraint_that_fails_at_commit_fails_the_attempt(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    @outbox.listener("billing", on="order.*", retry=QUICK)
    async def charge(event: Event[Any], session: AsyncSession) -> None:
        await session.execute(EFFECT, {"listener": "billing", "n": event.payload["n"]})
        if event.payload["n"] == 2:
            await session.execute(text("INSERT INTO checked_late VALUES (1), (1)"))

    producer.add(1, 2, 3)

    async with consuming(outbox) as running:
        await running.done("billing", 2)
        await running.dead("billing")

    [dead] = database.dead_letters("billing")
    assert [each["error"] for each in dead.errors] == ["sqlalchemy.exc.IntegrityError"] * 3
    assert database.effects("billing") == [1, 3]


async def test_a_sync_handler_has_a_session_in_its_thread(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    @outbox.listener("billing", on="order.*", retry=QUICK)
    def charge(event: Event[Any], session: Session) -> None:
        session.execute(EFFECT, {"listener": "billing", "n": event.payload["n"]})
        session.add(Order(name=f"order {event.payload['n']}"))

    producer.add(1, 2)

    async with consuming(outbox) as running:
        await running.done("billing", 2)

    assert database.effects("billing") == [1, 2]
    assert len(database.rows("SELECT FROM orders")) == 2


async def test_a_sync_handler_that_raises_leaves_nothing(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    attempts: list[int] = []

    @outbox.listener("billing", on="order.*", retry=QUICK)
    def charge(event: Event[Any], session: Session) -> None:
        session.execute(EFFECT, {"listener": "billing", "n": event.payload["n"]})
        attempts.append(len(attempts))
        if len(attempts) < 3:
            raise ValueError("after the effect")

    producer.add(1)

    async with consuming(outbox) as running:
        await running.done("billing")

    assert database.effects("billing") == [1]


async def test_a_sync_constraint_that_fails_at_commit_fails_the_attempt(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    @outbox.listener("billing", on="order.*", retry=QUICK)
    def charge(event: Event[Any], session: Session) -> None:
        session.execute(text("INSERT INTO checked_late VALUES (1), (1)"))

    producer.add(1)

    async with consuming(outbox) as running:
        await running.dead("billing")

    [dead] = database.dead_letters("billing")
    assert [each["error"] for each in dead.errors] == ["sqlalchemy.exc.IntegrityError"] * 3


async def test_the_effects_of_a_batch_and_the_cursor_are_one_transaction(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    seen: list[int] = []

    @outbox.listener("billing", on="order.*", batch_size=10)
    async def charge(events: Sequence[Event[Any]], session: AsyncSession) -> None:
        for event in events:
            await session.execute(EFFECT, {"listener": "billing", "n": event.payload["n"]})
        seen.append(len(database.effects("billing")))

    producer.add(*range(10))

    async with consuming(outbox) as running:
        await running.done("billing", 10)

    assert seen[0] == 0
    assert database.effects("billing") == list(range(10))


async def test_a_second_session_of_the_handler_s_own_works(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    @outbox.listener("billing", on="order.*")
    async def charge(event: Event[Any], session: AsyncSession) -> None:
        async with AsyncSession(session.bind) as own:
            await own.execute(EFFECT, {"listener": "own", "n": event.payload["n"]})
            await own.commit()

    producer.add(1)

    async with consuming(outbox) as running:
        await running.done("billing")

    assert database.effects("own") == [1]


async def test_a_handler_has_a_session_for_each_attempt(
    outbox: Outbox, producer: Producer, consuming: Consuming
) -> None:
    sessions: list[AsyncSession] = []

    @outbox.listener("billing", on="order.*", concurrency=2)
    async def charge(event: Event[Any], session: AsyncSession) -> None:
        sessions.append(session)
        await anyio.lowlevel.checkpoint()

    producer.add(1, 2, 3)

    async with consuming(outbox) as running:
        await running.done("billing", 3)

    assert len(set(map(id, sessions))) == 3


class TestAddingEvents:
    async def test_events_a_handler_adds_are_committed_with_its_effects(
        self, outbox: Outbox, producer: Producer, consuming: Consuming
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

    async def test_events_of_an_attempt_that_failed_are_never_delivered(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
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
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        from sa_outbox import OutboxSession  # noqa: PLC0415 - resolved from this module otherwise

        def charge(event: Event[Any], session: Any) -> None:
            assert isinstance(session, OutboxSession)
            session.add_event("order.paid", {"n": 1})

        outbox.listener("billing", on="order.placed")(charge)
        producer.add(1)

        async with consuming(outbox) as running:
            await running.done("billing")

        cause, effect = database.rows("SELECT event_id, headers FROM outbox ORDER BY id")
        assert effect.headers["causation_id"] == str(cause.event_id)

    async def test_a_loop_of_events_ends_as_a_dead_letter(
        self, notify: Notify, producer: Producer, database: Database, consuming: Consuming
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
        assert (dead.payload, dead.errors[0]["code"]) == ({"n": 3}, "causation-too-deep")
