"""How long does a small tenant wait behind a large one in the same queue?

A tenant's 100,000 events are committed, then another's ten, and a consumer is started. Counted is
how many events of the large one were handled before the last of the small one's, and how long both
took, with one handler at a time that does nothing and with eight that take five milliseconds.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from sa_outbox import Event, Outbox
from sa_outbox.consumer import Consumer
from sa_outbox.embedded import EmbeddedPostgres
from sa_outbox.schema import migrate

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

LARGE, SMALL = 100_000, 10
DURABLE = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}
FILL = text(
    "INSERT INTO outbox (event_id, event_type, tenant, payload)"
    " SELECT gen_random_uuid(), 'report.asked', :tenant, '{}' FROM generate_series(1, :count)"
)


async def run(server: EmbeddedPostgres) -> dict[float, int]:
    """Return how many of the large tenant's came first, by how long a handler takes."""
    engine = create_async_engine(server.url("asyncpg"), pool_size=20)
    async with engine.begin() as connection:
        await connection.run_sync(migrate, Outbox().settings.names)
        for tenant, count in (("large", LARGE), ("small", SMALL)):
            await connection.execute(FILL, {"tenant": tenant, "count": count})
    print(f"\na tenant with {LARGE:,} events, then one with {SMALL}, in one queue")
    before = {each: await contest(engine, each) for each in (0.0, 0.005)}
    await engine.dispose()
    return before


async def contest(engine: AsyncEngine, takes: float) -> int:
    outbox = Outbox()
    done = {"large": 0, "small": 0}
    finished, began = asyncio.Event(), time.perf_counter()
    before, seconds = 0, 0.0

    @outbox.listener(
        f"takes_{takes}".replace(".", "_"),
        on="report.asked",
        order="none",
        concurrency=8 if takes else 1,
    )
    async def handle(event: Event[Any]) -> None:
        nonlocal before, seconds
        if takes:
            await asyncio.sleep(takes)
        assert event.tenant is not None
        done[event.tenant] += 1
        if event.tenant == "small" and done["small"] == SMALL:
            before, seconds = done["large"], time.perf_counter() - began
        if sum(done.values()) == LARGE + SMALL:
            finished.set()

    consumer = Consumer(outbox, engine)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(consumer.run())
        await finished.wait()
        consumer.stop()
    print(
        f"  a handler of {takes * 1000:.0f} ms: the small one's last after {before:,} of the large"
        f" one's, {seconds:.2f} s; all after {time.perf_counter() - began:.1f} s"
    )
    return before


if __name__ == "__main__":
    with EmbeddedPostgres(settings=DURABLE) as server:
        asyncio.run(run(server))
