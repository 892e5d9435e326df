"""sa_outbox by default, order by the environment variable BENCH_ORDER, in a process like the
others. Runs in our own environment."""

# mypy: ignore-errors
import asyncio
import json
import os
from contextlib import asynccontextmanager

import uvloop
from contest import DSN, PAYLOAD, Peer, main
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from sa_outbox import Event, Outbox
from sa_outbox.consume.garbage import spare_what_is_loaded
from sa_outbox.consumer import Consumer
from sa_outbox.observe import Listening
from sa_outbox.schema import migrate

ADD = text(
    "INSERT INTO outbox (event_id, event_type, payload)"
    " SELECT gen_random_uuid(), 'order.placed', CAST(:payload AS jsonb)"
    " FROM generate_series(1, :count)"
)
EMPTIED = ("outbox", "outbox_listeners", "outbox_ranges")


class SaOutbox(Peer):
    def engine(self):
        return create_async_engine(DSN.replace("postgresql://", "postgresql+asyncpg://"))

    async def prepare(self):
        engine = self.engine()
        async with engine.begin() as connection:
            await connection.run_sync(migrate, Outbox().settings.names)
            for table in EMPTIED:
                await connection.execute(text(f"TRUNCATE {table} RESTART IDENTITY"))
        await engine.dispose()

    async def fill(self, count):
        engine = self.engine()
        async with engine.begin() as connection:
            await connection.execute(ADD, {"payload": json.dumps(PAYLOAD), "count": count})
        await engine.dispose()

    async def work(self, ready):
        outbox = Outbox()

        @outbox.listener("peer", on="order.placed", order=os.environ["BENCH_ORDER"])
        async def handler(event: Event) -> None:
            self.saw(event.payload)

        def observe(observation):
            if isinstance(observation, Listening):
                asyncio.get_running_loop().call_later(0.5, ready)

        consumer = Consumer(outbox, DSN, observers=[observe])
        spare_what_is_loaded()  # as the command does
        running = asyncio.create_task(consumer.run())
        await self.until_finished(running)
        consumer.stop()
        await running

    @asynccontextmanager
    async def sender(self):
        engine = self.engine()
        sessions = Outbox().async_sessionmaker(engine)

        async def send(payload):
            async with sessions() as session:
                session.add_event("order.placed", payload)
                await session.commit()

        yield send
        await engine.dispose()


main(SaOutbox, uvloop.run)
