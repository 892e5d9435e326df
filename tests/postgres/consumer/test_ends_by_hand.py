"""Ways around the session's guard: the connection's own commit, statements, and isolation."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import anyio
import pytest
from sqlalchemy import URL, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from sa_outbox import Event, Outbox
from sa_outbox.consumer import Consumer, ConsumerSettings
from sa_outbox.errors import NotDrained
from sa_outbox.observe import AttemptFailed, LeaseDropped
from tests.support.recorder import Recorder

from .conftest import ONCE, Consuming, Database, Producer

pytestmark = [pytest.mark.anyio, pytest.mark.woken_by("notify")]
INSERT = text("INSERT INTO effects VALUES ('billing', :n)")


async def test_the_connections_own_commit_is_refused_and_leaves_no_effect(
    outbox: Outbox, producer: Producer, consuming: Consuming, database: Database
) -> None:
    @outbox.listener("billing", on="order.*", retry=ONCE)
    async def charge(event: Event[Any], session: AsyncSession) -> None:
        await session.execute(INSERT, {"n": 1})
        await (await session.connection()).commit()

    producer.add(1)
    async with consuming(outbox) as running:
        await running.dead("billing")

    assert database.effects("billing") == []
    assert database.dead_letters("billing")[0].errors[0]["code"] == "handler-must-not-commit"


async def test_a_rollback_sent_as_a_statement_is_found_out(
    outbox: Outbox, producer: Producer, consuming: Consuming, database: Database
) -> None:
    @outbox.listener("billing", on="order.*", retry=ONCE)
    async def charge(event: Event[Any], session: AsyncSession) -> None:
        await session.execute(INSERT, {"n": 1})
        await session.execute(text("ROLLBACK"))

    producer.add(1)
    async with consuming(outbox) as running:
        await running.dead("billing")

    assert database.dead_letters("billing")[0].errors[0]["code"] == "handler-must-not-commit"


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
async def test_an_engine_of_another_isolation_does_not_hinder_the_cursor(
    level: Any, outbox: Outbox, producer: Producer, database: Database, migrated_url: URL
) -> None:
    address = migrated_url.set(drivername="postgresql+asyncpg")
    engine = create_async_engine(address, isolation_level=level)

    @outbox.listener("billing", on="order.*", concurrency=4, retry=ONCE)
    async def charge(event: Event[Any], session: AsyncSession) -> None:
        await session.execute(INSERT, {"n": event.payload["n"]})
        await anyio.lowlevel.checkpoint()

    for n in range(20):
        producer.add(n, key=f"key {n}")
    recorder = Recorder()
    await Consumer(outbox, engine, observers=[recorder]).drain()
    await engine.dispose()

    assert database.effects("billing") == list(range(20))
    assert recorder.of(AttemptFailed) + recorder.of(LeaseDropped) == []


async def test_a_system_exit_of_a_batch_is_blamed_on_the_event_that_raises_it_alone(
    outbox: Outbox, producer: Producer, database: Database, migrated_url: URL
) -> None:
    @outbox.listener("billing", on="order.*")
    async def charge(events: Sequence[Event[Any]], session: AsyncSession) -> None:
        for event in events:
            if event.payload["n"] == 2:
                raise SystemExit(1)
            await session.execute(INSERT, {"n": event.payload["n"]})

    producer.add(1, 2, 3)
    consumer = Consumer(outbox, migrated_url, settings=ConsumerSettings(max_crashes=2))
    stops = 0
    for _ in range(5):
        try:
            await consumer.drain()
        except NotDrained:
            stops += 1

    assert stops == 2
    assert database.effects("billing") == [1, 3]
    assert [row.reason for row in database.dead_letters("billing")] == ["crashes"]


@pytest.mark.long
async def test_a_handler_that_always_blocks_the_loop_past_its_lease_is_not_attempted_for_ever(
    outbox: Outbox, producer: Producer, database: Database, migrated_url: URL
) -> None:
    attempts = 0

    @outbox.listener("billing", on="order.*", batch_size=1)
    async def charge(event: Event[Any]) -> None:
        nonlocal attempts
        if event.payload["n"] == 1:
            attempts += 1
            threading.Event().wait(1.2)  # as a library without await would

    producer.add(1, 2, key="k")
    settings = ConsumerSettings(lease_duration=timedelta(seconds=1))
    await Consumer(outbox, migrated_url, settings=settings).drain()

    # Dropped, dropped with a narrow window, then alone, where it is settled in time.
    assert attempts <= 8
    assert database.listener("billing").last_processed_id == 2
