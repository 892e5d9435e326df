"""How long after its time does a scheduled event start?

Events of an idle queue and of an idle listener with order="key", one every quarter of a second or
so. Measured is the time between ``run_at`` and the first statement of the handler, by the clock of
the database. Nobody polls: the intervals are an hour. Goal: medians below 250 ms.

``python -m benchmarks.bench_scheduled``
"""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from sa_outbox import Event, Outbox
from sa_outbox.consumer import Consumer, ConsumerSettings
from sa_outbox.schema import migrate

from .alone import main
from .measure import waits
from .report import Goal, Report

if TYPE_CHECKING:
    from sa_outbox.embedded import EmbeddedPostgres

EVENTS, APART = 30, 0.27
HOUR = timedelta(hours=1)
NOW = text("SELECT clock_timestamp()")


async def run(server: EmbeddedPostgres, report: Report) -> None:
    outbox = Outbox()
    late: dict[str, list[float]] = {"none": [], "key": []}

    async def start(event: Event[Any], session: AsyncSession, order: str) -> None:
        now: datetime = (await session.execute(NOW)).scalar_one()
        assert event.run_at is not None
        late[order].append((now - event.run_at).total_seconds())

    @outbox.listener("queue", on="*", order="none", concurrency=4)
    async def queue(event: Event[Any], session: AsyncSession) -> None:
        await start(event, session, "none")

    @outbox.listener("listener", on="*", order="key", concurrency=4)
    async def listener(event: Event[Any], session: AsyncSession) -> None:
        await start(event, session, "key")

    engine = create_async_engine(server.url("asyncpg"), pool_size=10)
    async with engine.begin() as connection:
        await connection.run_sync(migrate, outbox.settings.names)
    sessions = outbox.async_sessionmaker(engine)
    async with sessions.begin() as session:
        for number in range(EVENTS):
            delay = timedelta(seconds=3 + number * APART)
            session.add_event("reminder.due", {"n": number}, delay=delay)
    settings = ConsumerSettings(poll_interval=HOUR, poll_interval_without_notify=HOUR)
    consumer = Consumer(outbox, engine, settings=settings)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(consumer.run())
        while min(len(each) for each in late.values()) < EVENTS:
            await asyncio.sleep(0.2)
        consumer.stop()
    await engine.dispose()
    found = {f'order="{order}"': times for order, times in late.items()}
    goals = [Goal(row=row, column="p50 ms", at_most=250.0) for row in found]
    title = f"scheduled events, {EVENTS} for each order: milliseconds after their time"
    report.add(waits("scheduled", title, found, goals=goals))


if __name__ == "__main__":
    main("bench_scheduled", run)
