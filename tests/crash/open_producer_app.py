"""The program of ``test_open_producer``: listeners that differ in what they do at a hole."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from sa_outbox import Event, Outbox
from tests.crash.seen import SEE, sight

GAP_WAIT = timedelta(seconds=5)

outbox = Outbox()


@outbox.listener("by_key", on="*", order="key", concurrency=4)
async def by_key(event: Event[Any], session: AsyncSession) -> None:
    await session.execute(SEE, sight("by_key", event))


@outbox.listener("in_total", on="*", order="total", gap_wait=GAP_WAIT)
async def in_total(event: Event[Any], session: AsyncSession) -> None:
    await session.execute(SEE, sight("in_total", event))


@outbox.listener("patient", on="*", order="total", gap_wait=None)
async def patient(event: Event[Any], session: AsyncSession) -> None:
    await session.execute(SEE, sight("patient", event))
