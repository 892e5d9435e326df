"""How long does a small tenant wait behind a large one in the same queue?

A tenant's 20,000 events are committed, then another's ten, and a consumer is started. Counted is
how many events of the large one were handled before the last of the small one's, and how long both
took, with one handler at a time that does nothing and with eight that take five milliseconds.

``python -m benchmarks.bench_tenants``
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from sa_outbox import Event, Outbox
from sa_outbox.consumer import Consumer
from sa_outbox.schema import migrate

from .alone import main
from .report import Report, Table

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

    from sa_outbox.embedded import EmbeddedPostgres

LARGE, SMALL = 20_000, 10
FILL = text(
    "INSERT INTO outbox (event_id, event_type, tenant, payload)"
    " SELECT gen_random_uuid(), 'report.asked', :tenant, '{}' FROM generate_series(1, :count)"
)


async def run(server: EmbeddedPostgres, report: Report) -> None:
    engine = create_async_engine(server.url("asyncpg"), pool_size=20)
    async with engine.begin() as connection:
        await connection.run_sync(migrate, Outbox().settings.names)
        for tenant, count in (("large", LARGE), ("small", SMALL)):
            await connection.execute(FILL, {"tenant": tenant, "count": count})
    rows = {
        "one handler that does nothing": await contest(engine, 0.0),
        "eight handlers of 5 ms": await contest(engine, 0.005),
    }
    await engine.dispose()
    report.add(
        Table(
            key="tenants",
            title=f"a tenant with {LARGE:,} events, then one with {SMALL}, in one queue",
            columns=("large before", "last small ms", "all ms"),
            rows=rows,
        )
    )


async def contest(engine: AsyncEngine, takes: float) -> tuple[float, float, float]:
    """How many of the large one's came before the small one's last; when that was; when all was."""
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
    return before, 1000 * seconds, 1000 * (time.perf_counter() - began)


if __name__ == "__main__":
    main("bench_tenants", run)
