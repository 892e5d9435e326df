"""Handlers and the consumer have connections apart from each other."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import anyio
import pytest
from sqlalchemy import URL, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

from sa_outbox import Event, Outbox, RetryPolicy
from sa_outbox.observe import DatabaseAway, Place

from .conftest import ONCE, Consuming, Database, Producer

pytestmark = [pytest.mark.anyio, pytest.mark.woken_by("poll")]


async def test_a_handler_that_takes_every_connection_stops_no_other_cursor(
    migrated_url: URL, outbox: Outbox, producer: Producer, consuming: Consuming
) -> None:
    small = create_async_engine(
        migrated_url.set(drivername="postgresql+asyncpg"),
        pool_size=1,
        max_overflow=0,
        pool_timeout=0.1,
    )
    enough = anyio.Event()

    @outbox.listener("greedy", on="order.*", order="total")
    async def take(event: Event[Any]) -> None:
        async with small.connect():
            await enough.wait()

    @outbox.listener("billing", on="order.*", order="total")
    async def charge(event: Event[Any]) -> None: ...

    # The assumptions are verified meanwhile, on that engine: it has to wait as well.
    async with consuming(
        outbox, engine=small, verify_interval=timedelta(milliseconds=50)
    ) as running:
        for n in range(10):
            producer.add(n)
            await running.done("billing", n + 1)
        with anyio.move_on_after(0.5):
            await running.stopped.wait()
        assert not running.stopped.is_set()
        enough.set()
        await running.done("greedy", 10)
    await small.dispose()


async def test_a_handler_that_waits_for_a_connection_of_the_pool_is_not_to_blame(
    migrated_url: URL, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    small = create_async_engine(
        migrated_url.set(drivername="postgresql+asyncpg"),
        pool_size=1,
        max_overflow=0,
        pool_timeout=0.05,
    )

    @outbox.listener("billing", on="order.*", retry=ONCE)
    async def charge(event: Event[Any], session: AsyncSession) -> None: ...

    async with consuming(outbox, engine=small) as running:
        async with small.connect():
            producer.add(1)
            await running.recorder.seen(DatabaseAway, where=Place("handler", "billing"))
        await running.done("billing")
    await small.dispose()

    assert database.dead_letters("billing") == []


async def test_a_handler_that_uses_the_consumer_s_engine_beside_its_session_works(
    async_engine: AsyncEngine, outbox: Outbox, producer: Producer, consuming: Consuming
) -> None:
    got: list[int] = []

    @outbox.listener("billing", on="order.*", retry=RetryPolicy(attempts=1))
    async def charge(event: Event[Any], session: AsyncSession) -> None:
        async with async_engine.connect() as connection:
            got.append((await connection.execute(text("SELECT 1"))).scalar_one())

    producer.add(1)

    async with consuming(outbox) as running:
        await running.done("billing")

    assert got == [1]
