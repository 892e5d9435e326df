"""A consumer that is cancelled at any moment leaves each effect once, and nothing behind."""

from __future__ import annotations

import random
from typing import Any

import anyio
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from sa_outbox import Event, Outbox
from sa_outbox.consumer import Consumer

from .conftest import Database, Producer, in_turns

pytestmark = pytest.mark.anyio
EVENTS = 150


@pytest.mark.long
@in_turns(2)
async def test_cancelled_at_any_moment_each_effect_is_there_once(
    seed: int, outbox: Outbox, producer: Producer, database: Database, async_engine: AsyncEngine
) -> None:
    chance = random.Random(seed)

    @outbox.listener("by_key", on="order.*", concurrency=3)
    async def by_key(event: Event[Any], session: AsyncSession) -> None:
        statement = text("INSERT INTO effects VALUES ('by_key', :n)")
        await session.execute(statement, {"n": event.payload["n"]})

    @outbox.listener("in_total", on="order.*", order="total")
    async def in_total(event: Event[Any], session: AsyncSession) -> None:
        statement = text("INSERT INTO effects VALUES ('in_total', :n)")
        await session.execute(statement, {"n": event.payload["n"]})

    for n in range(EVENTS):
        producer.add(n, key=f"key {n % 5}")
    for _ in range(40):
        async with anyio.create_task_group() as tasks:
            await tasks.start(_started, Consumer(outbox, async_engine))
            # Turns of the loop, so that every await of the work is met sooner or later.
            for _ in range(chance.randrange(2_000)):
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
    await Consumer(outbox, async_engine).drain()

    assert database.effects("by_key") == list(range(EVENTS))
    assert database.effects("in_total") == list(range(EVENTS))
    assert database.dead_letters("by_key") + database.dead_letters("in_total") == []


async def _started(consumer: Consumer, *, task_status: Any) -> None:
    await consumer.run(task_status=task_status)
