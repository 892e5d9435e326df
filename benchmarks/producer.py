"""A process that commits events, each in its transaction, and prints when each commit returned.

``python -m benchmarks.producer URL EVENTS RATE``: RATE commits per second from eight clients, each
at times that do not wait for the database; 0 for one at a time with pauses of 20 to 60 ms.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time

import uvloop
from sqlalchemy.ext.asyncio import create_async_engine

from sa_outbox import AsyncOutboxSession, Outbox

from .shop import PAYLOAD

CLIENTS = 8


async def main(url: str, events: int, rate: float) -> None:
    address = url.replace("postgresql://", "postgresql+asyncpg://")
    engine = create_async_engine(address, pool_size=CLIENTS)
    sessions = Outbox().async_sessionmaker(engine)
    committed: dict[int, float] = {}

    async def commit(session: AsyncOutboxSession, number: int) -> None:
        session.add_event("order.paid", {**PAYLOAD, "number": number}, key=f"order-{number}")
        await session.commit()
        committed[number] = time.monotonic()

    async def client(first: int, began: float) -> None:
        for number in range(first, events, CLIENTS):
            due = began + number / rate
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            async with sessions() as session:
                await commit(session, number)

    if rate:
        began = time.monotonic() + 0.2
        async with asyncio.TaskGroup() as tasks:
            for first in range(CLIENTS):
                tasks.create_task(client(first, began))
    else:
        for number in range(events):
            await asyncio.sleep(random.uniform(0.02, 0.06))
            async with sessions() as session:
                await commit(session, number)
    await engine.dispose()
    print(json.dumps(committed))


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
