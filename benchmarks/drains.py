"""A log full of events, and contestants that read it to its end.

Timed is what happens from the first event to the last: a consumer that starts has a lease to claim,
a cursor by hand has none, and neither is what is asked here.
"""

from __future__ import annotations

import asyncio
import json
import time
from datetime import UTC, datetime
from importlib import import_module
from typing import TYPE_CHECKING, Any

import asyncpg
import orjson
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from sa_outbox import Event, Outbox
from sa_outbox.consumer import Consumer
from sa_outbox.event.codec import decode
from sa_outbox.monitoring.metrics import Metrics
from sa_outbox.schema import migrate

from .shop import PAYLOAD, Base

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from sqlalchemy import Engine

    from sa_outbox.observe import Observer

BATCH = 500
WHOLE = """
    SELECT id, event_id, event_type, key, tenant, payload::text, headers::text,
           extract(epoch FROM run_at)::float8, priority, extract(epoch FROM created_at)::float8
    FROM outbox WHERE id > $1 ORDER BY id LIMIT $2
"""
LEAN = """
    SELECT id, event_id, event_type, payload, created_at FROM outbox
    WHERE id > $1 ORDER BY id LIMIT $2
"""
WRITE = """
    INSERT INTO outbox (event_id, event_type, key, payload)
    SELECT gen_random_uuid(), 'order.placed', 'customer-' || n % 1000, CAST(:payload AS jsonb)
    FROM generate_series(1, :events) n
"""


class Watch:
    """Notes when the first event came and when the last."""

    __slots__ = ("_expected", "_seen", "finished", "first", "last")

    def __init__(self, expected: int) -> None:
        self._expected = expected
        self._seen = 0
        self.first = self.last = 0.0
        self.finished = asyncio.Event()

    def saw_one(self) -> None:
        self._seen += 1
        if self._seen == 1:
            self.first = time.perf_counter()
        elif self._seen == self._expected:
            self.last = time.perf_counter()
            self.finished.set()

    @property
    def seconds(self) -> float:
        return self.last - self.first


class Reader:
    """An outbox whose listeners read one field of each event; ``watch`` is that of this turn."""

    def __init__(self, listeners: dict[str, dict[str, Any]], on: str = "order.placed") -> None:
        self.outbox = Outbox()
        self.watch = Watch(1)
        self._metrics = False
        for name, options in listeners.items():
            self.outbox.listener(name, on=on, **options)(self._handler())

    def _handler(self) -> Callable[[Event[Any]], Awaitable[None]]:
        async def handler(event: Event[Any]) -> None:
            event.payload["order_id"]  # what is not read is not decoded
            self.watch.saw_one()

        return handler

    async def drain(
        self, engine: AsyncEngine, listener: str, events: int, *, metrics: bool = False
    ) -> float:
        """Seconds from the first event to the last, of a listener that starts from nothing."""
        self._metrics = metrics
        async with engine.begin() as connection:
            await connection.execute(text("DELETE FROM outbox_ranges"))
            await connection.execute(text("DELETE FROM outbox_listeners"))
        return await self.catch_up(engine, listener, events)

    async def catch_up(self, engine: AsyncEngine, listener: str, events: int) -> float:
        """Seconds from the first to the last of *events* that wait for the listener."""
        self.watch = Watch(events)
        observers = [Metrics(self.outbox)] if self._metrics else []
        return await watched(self.outbox, engine, listener, self.watch, observers)


async def watched(
    outbox: Outbox,
    engine: AsyncEngine,
    listener: str,
    watch: Watch,
    observers: Sequence[Observer] = (),
) -> float:
    """Run a consumer for one listener until *watch* has seen all: the seconds from the first."""
    consumer = Consumer(outbox, engine, listeners=[listener], observers=observers)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(consumer.run())
        await watch.finished.wait()
        consumer.stop()
        await running
    return watch.seconds


async def lean_cursor(dsn: str, upper: int) -> float:
    """The least that a cursor by hand can do: five columns, orjson, no event object."""
    connection = await asyncpg.connect(dsn)
    await connection.execute("UPDATE by_hand SET position = 0")
    watch, position = Watch(upper), 0
    while position < upper:
        rows = await connection.fetch(LEAN, position, BATCH)
        for row in rows:
            await lean_handler(orjson.loads(row["payload"]), watch)
        position = rows[-1]["id"]
        await connection.execute("UPDATE by_hand SET position = $1", position)
    await connection.close()
    return watch.seconds


async def context_cursor(dsn: str, upper: int) -> float:
    """The lean one, with what its log lines need bound for each event: which one, and of what
    type."""
    structlog: Any = import_module("structlog")  # not at the top: loaded, it is bound to
    connection = await asyncpg.connect(dsn)
    await connection.execute("UPDATE by_hand SET position = 0")
    watch, position = Watch(upper), 0
    while position < upper:
        rows = await connection.fetch(LEAN, position, BATCH)
        for row in rows:
            names = {"event_id": str(row["event_id"]), "event_type": row["event_type"]}
            with structlog.contextvars.bound_contextvars(listener="by hand", **names):
                await lean_handler(orjson.loads(row["payload"]), watch)
        position = rows[-1]["id"]
        await connection.execute("UPDATE by_hand SET position = $1", position)
    await connection.close()
    return watch.seconds


async def lean_handler(payload: dict[str, Any], watch: Watch) -> None:
    payload["order_id"]
    watch.saw_one()


async def whole_cursor(dsn: str, upper: int) -> float:
    """A cursor by hand that makes the same ``Event`` for its handler, all of it decoded."""
    connection = await asyncpg.connect(dsn)
    await connection.execute("UPDATE by_hand SET position = 0")
    watch, position = Watch(upper), 0
    while position < upper:
        for row in await connection.fetch(WHOLE, position, BATCH):
            event = Event(
                row[2],
                decode(row[5]),
                event_id=row[1],
                key=row[3],
                tenant=row[4],
                headers=decode(row[6]),
                run_at=None if row[7] is None else datetime.fromtimestamp(row[7], UTC),
                priority=row[8],
                position=row[0],
                created_at=datetime.fromtimestamp(row[9], UTC),
            )
            await lean_handler(event.payload, watch)
            position = row[0]
        await connection.execute("UPDATE by_hand SET position = $1", position)
    await connection.close()
    return watch.seconds


async def drained(
    outbox: Outbox,
    engine: AsyncEngine,
    listener: str,
    sync_engine: Engine | None = None,
    *,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Seconds from the first read to the last settled event, for one listener from the beginning:
    for relays and handlers with a session, whose work ends with a commit."""
    async with engine.begin() as connection:
        await connection.execute(text("DELETE FROM outbox_ranges"))
        await connection.execute(text("DELETE FROM outbox_listeners"))
    began = 0.0

    def observe(observation: object) -> None:
        nonlocal began
        if not began and type(observation).__name__ in ("LeaseClaimed", "RangeTaken"):
            began = clock()

    consumer = Consumer(
        outbox, engine, listeners=[listener], sync_engine=sync_engine, observers=[observe]
    )
    ended = 0.0
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(consumer.run())
        await asyncio.sleep(0)
        while not began:
            await asyncio.sleep(0.001)
        consumer.observers.remove(observe)
        await consumer.drain()
        ended = clock()
        consumer.stop()
        await running
    return ended - began


async def prepared(url: str, **options: Any) -> AsyncEngine:
    """An engine for a migrated database with the tables that benchmarks need."""
    engine = create_async_engine(url, **options)
    async with engine.begin() as connection:
        await connection.run_sync(migrate, Outbox().settings.names)
        await connection.run_sync(Base.metadata.create_all)
        await connection.execute(text("CREATE TABLE by_hand AS SELECT CAST(0 AS bigint) position"))
    return engine


async def fill(engine: AsyncEngine, events: int) -> None:
    """An empty log, then *events* of them with the ids from 1."""
    async with engine.begin() as connection:
        await connection.execute(text("TRUNCATE outbox RESTART IDENTITY"))
    await append(engine, events)
    await vacuum(engine)


async def append(engine: AsyncEngine, events: int) -> None:
    given = {"payload": json.dumps(PAYLOAD), "events": events}
    async with engine.begin() as connection:
        await connection.execute(text(WRITE), given)


async def vacuum(engine: AsyncEngine) -> None:
    async with engine.connect() as connection:
        bare = await connection.execution_options(isolation_level="AUTOCOMMIT")
        await bare.execute(text("VACUUM ANALYZE outbox"))
