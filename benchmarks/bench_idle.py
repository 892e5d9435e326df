"""What does a consumer cost that has nothing to do?

A consumer with ten listeners, notifications on, no events. Counted are the transactions of its
database in a minute: each statement of an idle consumer is one. And the processor time it took.
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

if TYPE_CHECKING:
    from sa_outbox.embedded import EmbeddedPostgres

LISTENERS, SECONDS = 10, 60.0
SETTINGS = {"autovacuum": "off"}
"""Of the server: its own transactions would be counted too."""
COUNT = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = $1"


async def handler(event: Event[Any]) -> None:
    pass


async def run(server: EmbeddedPostgres, seconds: float = SECONDS) -> float:
    """Return the statements per minute."""
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
        await asyncio.sleep(15)  # it has started, and what it did for that is counted
        database = engine.url.database
        statements, processor = await outside.fetchval(COUNT, database), time.process_time()
        await asyncio.sleep(seconds)
        processor = time.process_time() - processor
        statements = await outside.fetchval(COUNT, database) - statements
        consumer.stop()
    await outside.close()
    await engine.dispose()
    per_minute = float(statements * 60 / seconds)
    print(f"\nan idle consumer with {LISTENERS} listeners")
    print(f"  {per_minute:.0f} statements per minute, {processor / seconds:.2%} of a processor")
    return per_minute
