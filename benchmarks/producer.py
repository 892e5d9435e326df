"""A process that commits one event at a time and prints when each commit had returned."""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time

from sqlalchemy.ext.asyncio import create_async_engine

from sa_outbox import Outbox

from .shop import PAYLOAD


async def main(url: str, events: int) -> None:
    engine = create_async_engine(url)
    sessions = Outbox().async_sessionmaker(engine)
    committed = []
    for number in range(events):
        await asyncio.sleep(random.uniform(0.02, 0.06))
        async with sessions() as session:
            session.add_event("order.paid", PAYLOAD, key=f"order-{number}")
            await session.commit()
            committed.append(time.monotonic())
    await engine.dispose()
    print(json.dumps(committed))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
