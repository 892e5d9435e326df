"""A database that goes away in the middle: everything delays, nothing is lost or done twice."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from sa_outbox import Event, Outbox
from sa_outbox.observe import AttemptFailed, DatabaseAway, Listening, Place
from tests.support import comes_true

from .conftest import ONCE, Consuming, Database, Producer

pytestmark = pytest.mark.anyio

EFFECT = text("INSERT INTO effects VALUES ('billing', :n)")
END = text("SELECT pg_terminate_backend(:pid, 5000)")


async def test_the_consumer_s_connections_are_ended_while_events_flow(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    for order in ("total", "key"):

        @outbox.listener(order, on="order.*", order=order, batch_size=8)
        async def charge(event: Event[Any], session: AsyncSession, order: str = order) -> None:
            values = {"order": order, "n": event.payload["n"]}
            await session.execute(text("INSERT INTO effects VALUES (:order, :n)"), values)

    async with consuming(outbox) as running:
        for n in range(40):
            producer.add(n, key=f"key {n % 3}")
            if n % 15 == 5:
                await running.done("key", n // 2)
                database.end_consumer_backends()
        await comes_true(lambda: len(database.effects("total")) == 40)
        await comes_true(lambda: len(database.effects("key")) == 40)

    assert database.effects("total") == database.effects("key") == list(range(40))
    assert running.recorder.of(AttemptFailed) == []


async def test_every_connection_is_ended_while_events_flow(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    """Those of handlers too, in the middle of their transactions and of their commits."""

    @outbox.listener("billing", on="order.*", concurrency=4, retry=ONCE)
    async def charge(event: Event[Any], session: AsyncSession) -> None:
        await session.execute(EFFECT, {"n": event.payload["n"]})
        await session.execute(text("SELECT pg_sleep(0.002)"))

    async with consuming(outbox) as running:
        for n in range(40):
            producer.add(n, key=f"key {n % 7}")
            if n % 15 == 5:
                await running.done("billing", n // 2)
                database.end_other_backends()
        await comes_true(lambda: len(database.effects("billing")) == 40)

    assert database.effects("billing") == list(range(40))
    assert database.dead_letters("billing") == []


async def test_a_listen_connection_that_is_ended_is_made_anew(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming, notify: str
) -> None:
    got: list[int] = []

    @outbox.listener("billing", on="order.*")
    async def charge(event: Event[Any]) -> None:
        got.append(event.payload["n"])

    async with consuming(outbox) as running:
        await running.listening()
        database.end_consumer_backends()
        producer.add(1)
        await running.done("billing")
        if notify == "on":
            await running.recorder.seen(Listening, times=2)
        producer.add(2)
        await running.done("billing", 2)

    assert got == [1, 2]


async def test_the_end_of_the_handler_s_own_connection_is_no_attempt(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    calls: list[int] = []

    @outbox.listener("billing", on="order.*", retry=ONCE)
    async def charge(event: Event[Any], session: AsyncSession) -> None:
        calls.append(event.payload["n"])
        await session.execute(EFFECT, {"n": event.payload["n"]})
        if len(calls) == 1:
            pid = (await session.execute(text("SELECT pg_backend_pid()"))).scalar_one()
            database.rows("SELECT pg_terminate_backend(:pid, 5000)", pid=pid)
            await session.execute(text("SELECT 1"))

    producer.add(1)

    async with consuming(outbox) as running:
        await running.done("billing")

    assert calls == [1, 1]
    assert database.effects("billing") == [1]
    assert running.recorder.of(AttemptFailed) == []
    assert len(running.recorder.of(DatabaseAway, where=Place("handler", "billing"))) == 1


async def test_a_deadlock_is_no_attempt(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    calls: list[int] = []

    @outbox.listener("billing", on="order.*", retry=ONCE)
    async def charge(event: Event[Any], session: AsyncSession) -> None:
        calls.append(1)
        await session.execute(EFFECT, {"n": event.payload["n"]})
        if len(calls) < 3:
            raised = "DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = 'deadlock_detected'; END $$"
            await session.execute(text(raised))

    producer.add(1)

    async with consuming(outbox) as running:
        await running.done("billing")

    assert len(calls) == 3
    assert database.effects("billing") == [1]


async def test_a_handler_that_always_ends_in_a_deadlock_has_failed(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    @outbox.listener("billing", on="order.*", retry=ONCE)
    async def charge(event: Event[Any], session: AsyncSession) -> None:
        raised = "DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = 'serialization_failure'; END $$"
        await session.execute(text(raised))

    producer.add(1)

    async with consuming(outbox) as running:
        await running.dead("billing")

    assert database.dead_letters("billing")[0].attempts == 1
