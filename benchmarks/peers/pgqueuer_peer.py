"""pgqueuer: batches of 1000, asyncpg, uvloop; jobs are added in portions of 10,000."""

# mypy: ignore-errors
import asyncio
import json
from contextlib import asynccontextmanager
from datetime import timedelta

import asyncpg
import uvloop
from contest import DSN, PAYLOAD, Peer, main
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.queries import Queries

PORTION = 10_000


class Pgqueuer(Peer):
    async def queries(self):
        return Queries(AsyncpgDriver(await asyncpg.connect(DSN)))

    async def prepare(self):
        queries = await self.queries()
        if not await queries.schema_is_installed():
            await queries.install()
        await queries.clear_queue()

    async def fill(self, count):
        queries, payload = await self.queries(), json.dumps(PAYLOAD).encode()
        for start in range(0, count, PORTION):
            part = min(PORTION, count - start)
            await queries.enqueue(["order"] * part, [payload] * part, [0] * part)

    async def work(self, ready):
        pool = await asyncpg.create_pool(DSN, min_size=2, max_size=10)
        program = PgQueuer(AsyncpgPoolDriver(pool))

        @program.entrypoint("order")
        async def handler(job):
            self.saw(json.loads(job.payload))

        batch = 10 if self.noting else 1000
        running = asyncio.create_task(
            program.run(batch_size=batch, dequeue_timeout=timedelta(seconds=30))
        )
        await asyncio.sleep(1.5 if self.noting else 0)  # it does not say when it listens
        ready()
        await self.until_finished(running)

    @asynccontextmanager
    async def sender(self):
        queries = await self.queries()

        async def send(payload):
            await queries.enqueue("order", json.dumps(payload).encode())

        yield send


main(Pgqueuer, uvloop.run)
