"""pgmq, installed from the SQL in its Python package: 500 messages are read and deleted at a time.

The queue for latency has its notifications switched on, without a pause between two of them; the
one that is filled and drained has none, since they make adding many messages far slower.
"""

# mypy: ignore-errors
import asyncio
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

import asyncpg
import uvloop
from contest import DSN, PAYLOAD, Peer, main
from pgmq import install_pgmq_from_sql
from pgmq.async_queue import PGMQueue

BATCH, PORTION = 500, 10_000


class Pgmq(Peer):
    @property
    def queue(self):
        return "noted" if self.noting else "orders"

    async def opened(self, size=1):
        parts = urlsplit(DSN)
        client = PGMQueue(
            host=parts.hostname,
            port=str(parts.port),
            username=parts.username,
            password=parts.password,
            database=parts.path[1:],
            pool_size=size,
            init_extension=False,
        )
        await client.init()
        return client

    async def prepare(self):
        connection = await asyncpg.connect(DSN)
        exists = await connection.fetchval("SELECT to_regclass('pgmq.q_orders')")
        await connection.close()
        if not exists:
            install_pgmq_from_sql(dsn=DSN)
            client = await self.opened()
            for queue in ("orders", "noted"):
                await client.create_queue(queue)
            await client.enable_notify("noted", throttle_interval_ms=0)
        client = await self.opened()
        for queue in ("orders", "noted"):
            await client.purge(queue)

    async def fill(self, count):
        client = await self.opened()
        for start in range(0, count, PORTION):
            await client.send_batch("orders", [PAYLOAD] * min(PORTION, count - start))

    async def work(self, ready):
        client, woken = await self.opened(2), asyncio.Event()
        listening = await asyncpg.connect(DSN)
        await listening.add_listener(f"pgmq.q_{self.queue}.INSERT", lambda *_: woken.set())
        ready()
        while not self.finished.is_set():
            messages = await client.read_batch(self.queue, vt=60, batch_size=BATCH)
            if messages:
                for each in messages:
                    self.saw(each.message)
                await client.delete_batch(self.queue, [each.msg_id for each in messages])
                continue
            with suppress(TimeoutError):
                await asyncio.wait_for(woken.wait(), 1)
            woken.clear()

    @asynccontextmanager
    async def sender(self):
        client = await self.opened()

        async def send(payload):
            await client.send("noted", payload)

        yield send


main(Pgmq, uvloop.run)
