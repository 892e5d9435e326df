"""Listeners whose effects are rows, written through the session they are given.

What an event's ``then`` says is done by each handler: ``slow`` takes a second, ``die`` ends the
process, ``fail`` raises.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import make_url, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from sa_outbox import Event, Outbox, RetryPolicy
from tests.crash.seen import SEE, sight

outbox = Outbox()
SOON = RetryPolicy(attempts=3, base=timedelta(milliseconds=50))
own = create_async_engine(
    make_url(os.environ["SA_OUTBOX_DATABASE_URL"]).set(drivername="postgresql+asyncpg")
)


async def act(event: Event[Any]) -> None:
    match event.payload.get("then"):
        case "slow":
            async with own.begin() as connection:
                await connection.execute(
                    text("INSERT INTO begun (position, pid) VALUES (:position, :pid)"),
                    {"position": event.position, "pid": os.getpid()},
                )
            await asyncio.sleep(1)
        case "die":
            os._exit(70)
        case "fail":
            raise ValueError("told to fail")
        case _:
            await asyncio.sleep(0.001)


@outbox.listener("by_key", on="*", concurrency=4, retry=SOON)
async def by_key(event: Event[Any], session: AsyncSession) -> None:
    await session.execute(SEE, sight("by_key", event))
    await act(event)


@outbox.listener("in_total", on="*", order="total", retry=SOON)
async def in_total(event: Event[Any], session: AsyncSession) -> None:
    await session.execute(SEE, sight("in_total", event))
    await act(event)


@outbox.listener("in_batches", on="*", batch_size=20, retry=SOON)
async def in_batches(events: Sequence[Event[Any]], session: AsyncSession) -> None:
    for event in events:
        await session.execute(SEE, sight("in_batches", event))
        await act(event)
