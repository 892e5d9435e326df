"""Listeners in partitions, whose effects are rows, written through the session they are given."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from sa_outbox import Event, Outbox, RetryPolicy
from tests.crash.seen import SEE, sight

outbox = Outbox()
SOON = RetryPolicy(attempts=50, base=timedelta(milliseconds=20))


@outbox.listener("by_key", on="*", partitions=4, concurrency=2, retry=SOON)
async def by_key(event: Event[Any], session: AsyncSession) -> None:
    await session.execute(SEE, sight("by_key", event))
    await asyncio.sleep(0)
    if random.random() < 0.02:
        raise ValueError("now and then: parked, and what follows behind it")


@outbox.listener("in_batches", on="*", partitions=4, batch_size=20, retry=SOON)
async def in_batches(events: Sequence[Event[Any]], session: AsyncSession) -> None:
    for event in events:
        await session.execute(SEE, sight("in_batches", event))
