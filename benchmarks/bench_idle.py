"""What does a consumer cost that has nothing to do?

A consumer with ten listeners, notifications on, no events. Counted are the transactions of its
database: each statement of an idle consumer is one. And the processor time it took.

``python -m benchmarks.bench_idle``
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import asyncpg
from sqlalchemy.ext.asyncio import create_async_engine

from sa_outbox import Event, Outbox
from sa_outbox.consumer import Consumer
from sa_outbox.schema import migrate

from .alone import main
from .report import Report, Table

if TYPE_CHECKING:
    from sa_outbox.embedded import EmbeddedPostgres

LISTENERS, STARTING, SECONDS = 10, 5.0, 20.0
SETTINGS = {"autovacuum": "off"}
"""Of the server: its own transactions would be counted too."""
COUNT = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = $1"


async def handler(event: Event[Any]) -> None:
    pass


async def run(server: EmbeddedPostgres, report: Report) -> None:
    outbox = Outbox()
    for number in range(LISTENERS):
        outbox.listener(f"listener-{number}", on="order.*")(handler)
    engine = create_async_engine(server.url("asyncpg"))
    async with engine.begin() as connection:
        await connection.run_sync(migrate, outbox.settings.names)
    consumer = Consumer(outbox, engine)
    # In another database: the question must not count itself.
    outside = await asyncpg.connect(server.url(database="template1"))
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(consumer.run())
        await asyncio.sleep(STARTING)  # it has started, and what it did for that is counted
        database = engine.url.database
        statements, processor = await outside.fetchval(COUNT, database), time.process_time()
        await asyncio.sleep(SECONDS)
        processor = time.process_time() - processor
        statements = await outside.fetchval(COUNT, database) - statements
        consumer.stop()
    await outside.close()
    await engine.dispose()
    figures = (statements * 60 / SECONDS, 100 * processor / SECONDS)
    report.add(
        Table(
            key="idle",
            title=f"a consumer with {LISTENERS} listeners and nothing to do",
            columns=("statements/minute", "processor %"),
            rows={"idle": figures},
        )
    )


if __name__ == "__main__":
    main("bench_idle", run, settings=SETTINGS)
