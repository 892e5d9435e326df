"""An asyncpg cursor by hand: batches of 500, orjson, one UPDATE of a cursor row per batch. It loses
events when commits overtake each other. Runs in our own environment."""

# mypy: ignore-errors
import asyncio
import json
from contextlib import asynccontextmanager, suppress

import asyncpg
import orjson
import uvloop
from contest import DSN, PAYLOAD, Peer, main

BATCH = 500
TABLES = """
    CREATE TABLE IF NOT EXISTS log (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, event_id uuid NOT NULL,
        event_type text NOT NULL, payload jsonb NOT NULL,
        created_at timestamptz NOT NULL DEFAULT now());
    CREATE TABLE IF NOT EXISTS cursors (position bigint);
    TRUNCATE log, cursors RESTART IDENTITY;
    INSERT INTO cursors VALUES (0)
"""
ADD = """
    INSERT INTO log (event_id, event_type, payload)
    SELECT gen_random_uuid(), 'order.placed', $1::jsonb FROM generate_series(1, $2)
"""
READ = """
    SELECT id, event_id, event_type, payload, created_at FROM log
    WHERE id > $1 ORDER BY id LIMIT $2
"""


class Cursor(Peer):
    async def prepare(self):
        await (await asyncpg.connect(DSN)).execute(TABLES)

    async def fill(self, count):
        await (await asyncpg.connect(DSN)).execute(ADD, json.dumps(PAYLOAD), count)

    async def work(self, ready):
        connection, listening = await asyncpg.connect(DSN), await asyncpg.connect(DSN)
        woken = asyncio.Event()
        await listening.add_listener("log", lambda *_: woken.set())
        position = await connection.fetchval("SELECT position FROM cursors")
        ready()
        while not self.finished.is_set():
            rows = await connection.fetch(READ, position, BATCH)
            if rows:
                for row in rows:
                    self.saw(orjson.loads(row["payload"]))
                position = rows[-1]["id"]
                await connection.execute("UPDATE cursors SET position = $1", position)
                continue
            with suppress(TimeoutError):
                await asyncio.wait_for(woken.wait(), 1)
            woken.clear()

    @asynccontextmanager
    async def sender(self):
        connection = await asyncpg.connect(DSN)

        async def send(payload):
            async with connection.transaction():
                await connection.execute(ADD, json.dumps(payload), 1)
                await connection.execute("NOTIFY log")

        yield send


main(Cursor, uvloop.run)
