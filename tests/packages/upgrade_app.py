"""A program that the previous release and this one run beside each other.

It uses what every release has, and writes down where the release that ran is installed.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

import sa_outbox
from sa_outbox import Event, Outbox

RELEASE = str(Path(sa_outbox.__file__).parents[1])
PLACE = text("INSERT INTO orders (phase, release) VALUES (:phase, :release) RETURNING id")
SEE = text(
    "INSERT INTO seen (listener, order_id, key, phase, release)"
    " VALUES (:listener, :order_id, :key, :phase, :release)"
)
outbox = Outbox()


async def see(listener: str, event: Event[Any], session: AsyncSession) -> None:
    where = {"listener": listener, "key": event.key, "release": RELEASE}
    await session.execute(SEE, where | event.payload)


@outbox.listener("in_order", on="*", order="key")
async def in_order(event: Event[Any], session: AsyncSession) -> None:
    await see("in_order", event, session)


@outbox.listener("shared", on="*", order="none", batch_size=2)
async def shared(event: Event[Any], session: AsyncSession) -> None:
    await see("shared", event, session)


async def produce(phase: str, orders: int) -> None:
    address = os.environ["SA_OUTBOX_DATABASE_URL"].replace("://", "+asyncpg://", 1)
    engine = create_async_engine(address)
    sessions = outbox.async_sessionmaker(engine)
    for number in range(orders):
        async with sessions.begin() as session:
            where = {"phase": phase, "release": RELEASE}
            order_id = await session.scalar(PLACE, where)
            payload = {"order_id": order_id, "phase": phase}
            session.add_event("order.placed", payload, key=f"{RELEASE} {number % 5}")
    await engine.dispose()


if __name__ == "__main__":
    asyncio.run(produce(sys.argv[1], int(sys.argv[2])))
