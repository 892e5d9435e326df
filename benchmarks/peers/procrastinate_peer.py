"""procrastinate: 30 jobs at a time on 10 connections, woken by NOTIFY."""

# mypy: ignore-errors
import asyncio
import logging
from contextlib import asynccontextmanager

import procrastinate
from contest import DSN, PAYLOAD, Peer, main
from psycopg import AsyncConnection

PORTION = 5_000
logging.disable(logging.CRITICAL)


class Procrastinate(Peer):
    def opened(self, size):
        connector = procrastinate.PsycopgConnector(conninfo=DSN, min_size=1, max_size=size)
        app = procrastinate.App(connector=connector)

        @app.task(queue="orders", name="order")
        async def order(**payload):
            self.saw(payload)

        self.order = order
        return app.open_async()

    async def prepare(self):
        async with await AsyncConnection.connect(DSN, autocommit=True) as connection:
            found = await connection.execute("SELECT to_regclass('procrastinate_jobs')")
            exists = (await found.fetchone())[0]
            if exists:
                await connection.execute("TRUNCATE procrastinate_jobs CASCADE")
        if not exists:
            async with self.opened(1) as app:
                await app.schema_manager.apply_schema_async()

    async def fill(self, count):
        async with self.opened(1):
            for start in range(0, count, PORTION):
                part = min(PORTION, count - start)
                await self.order.batch_defer_async(*[PAYLOAD] * part)

    async def work(self, ready):
        async with self.opened(10) as app:
            running = asyncio.create_task(
                app.run_worker_async(
                    concurrency=30, install_signal_handlers=False, listen_notify=True
                )
            )
            await asyncio.sleep(1.5 if self.noting else 0)  # it does not say when it listens
            ready()
            await self.until_finished(running)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    @asynccontextmanager
    async def sender(self):
        async with self.opened(1):

            async def send(payload):
                await self.order.defer_async(**payload)

            yield send


main(Procrastinate)
