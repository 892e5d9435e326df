"""Handlers with a session: what they do in it, and the cursor, are one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from sa_outbox import Event, Outbox
from tests.support.shop import Order

from .conftest import ONCE, QUICK, Consuming, Database, Producer

pytestmark = [pytest.mark.anyio, pytest.mark.woken_by("notify")]

EFFECT = text("INSERT INTO effects VALUES (:listener, :n)")


async def test_effect_and_cursor_are_committed_together(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    """Each moment before the end there is neither of them, each moment after it there are both."""
    seen: list[tuple[int, int]] = []

    @outbox.listener("billing", on="order.*", order="total", group_commit=False)
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
