"""The program of ``test_commit_reorder``: listeners of each kind that write down what they see."""

from __future__ import annotations

import os
from typing import Any

from sqlalchemy import make_url
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from sa_outbox import Event, Outbox
from tests.crash.seen import SEE, sight

outbox = Outbox()
own = create_async_engine(
    make_url(os.environ["SA_OUTBOX_DATABASE_URL"]).set(drivername="postgresql+asyncpg")
)


@outbox.listener("by_key", on="*", order="key", concurrency=4)
async def by_key(event: Event[Any], session: AsyncSession) -> None:
    await session.execute(SEE, sight("by_key", event))


@outbox.listener("in_total", on="*", order="total", gap_wait=None)
async def in_total(event: Event[Any], session: AsyncSession) -> None:
    await session.execute(SEE, sight("in_total", event))


@outbox.listener("plain", on="*", order="key", concurrency=4, batch_size=50)
async def plain(event: Event[Any]) -> None:
    async with own.begin() as connection:
        await connection.execute(SEE, sight("plain", event))
