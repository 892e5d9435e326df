"""``Consumer.run()`` is cancelled, at any moment: the event loop has nothing to report."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import Any

import pytest
from sqlalchemy import URL, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from sa_outbox import Event, Outbox
from sa_outbox.consumer import Consumer
from sa_outbox.consumer.connection.engines import connector
from tests.support.loop_errors import reported

from .conftest import Database, Producer, in_turns

pytestmark = pytest.mark.anyio


async def cancelled_after(turns: int, work: Any) -> None:
    task = asyncio.ensure_future(work)
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("kind", ["address", "engine"])
async def test_a_connection_that_is_cancelled_while_it_is_made_leaves_no_error(
    migrated_url: URL, database: Database, kind: str
) -> None:
    url = migrated_url.set(drivername="postgresql+asyncpg")
    engine = create_async_engine(url)
    connect = connector(url if kind == "address" else engine)

    async def work() -> None:
        driver = await connect()
        driver.terminate()

    async with reported() as errors:
        for turns in range(40):
            await cancelled_after(turns, work())
    await engine.dispose()

    assert errors == []


@pytest.mark.long
@in_turns(2)
async def test_a_consumer_that_is_cancelled_leaves_no_error(
    seed: int, outbox: Outbox, producer: Producer, database: Database, migrated_url: URL
) -> None:
    chance = random.Random(seed)

    @outbox.listener("by_key", on="order.*", concurrency=3)
    async def by_key(event: Event[Any], session: AsyncSession) -> None:
        await session.execute(text("SELECT 1"))

    @outbox.listener("queue", on="order.*", order="none")
    async def queue(event: Event[Any]) -> None: ...

    address = migrated_url.set(drivername="postgresql+asyncpg")
    async with reported() as errors:
        for n in range(50):
            producer.add(n, key=f"key {n % 3}")
            consumer = Consumer(outbox, address)
            await cancelled_after(chance.randrange(1_500), consumer.run())

    assert errors == []
