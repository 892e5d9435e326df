"""What does the Kafka relay cost, against aiokafka alone?

librdkafka's mock cluster in this process (its threads hold no lock of Python), a topic with 6
partitions. aiokafka alone: an idempotent producer that sends 500 messages from memory, with the
same headers and record batches as large, and waits for them. The same with a cursor by hand: 500
rows are read with asyncpg, their messages made and sent, the cursor moved. The relay from memory:
those messages through ``Kafka.send``. The relay: a consumer reads the log, makes the messages,
sends and settles. Goal: the relay has at least 0.7 of the speed of aiokafka alone.

``python -m benchmarks.bench_kafka``
"""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import asyncpg
from aiokafka import AIOKafkaProducer
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from sa_outbox import Event, Outbox
from sa_outbox.consume.garbage import spare_what_is_loaded
from sa_outbox.event.codec import decode
from sa_outbox.relay import Plain
from sa_outbox.relay.kafka import Kafka
from sa_outbox.relay.kafka.relay import PACK
from sa_outbox.schema import migrate
from tests.support.kafka import cluster

from .alone import main
from .drains import WHOLE, drained, fill
from .measure import Contestant, speeds, take_turns
from .report import Goal, Report
from .shop import PAYLOAD

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from sa_outbox.embedded import EmbeddedPostgres
    from sa_outbox.relay import Message

EVENTS, BATCH, KEYS, PARTITIONS, ROUNDS = 50_000, 500, 1000, 6, 9


def batches(destination: str) -> list[list[Message]]:
    made = []
    for number in range(EVENTS):
        event: Event[Any] = Event("order.placed", PAYLOAD, key=f"customer-{number % KEYS}")
        made.append(Plain().wrap(event, destination, epoch=1, prefix="ce_"))
    return [made[start : start + BATCH] for start in range(0, EVENTS, BATCH)]


async def by_hand(servers: str, waiting: Sequence[Sequence[Message]]) -> float:
    async with sending(servers) as send:
        began = time.perf_counter()
        for batch in waiting:
            await send(batch)
        return time.perf_counter() - began


async def cursor_by_hand(servers: str, dsn: str) -> float:
    connection = await asyncpg.connect(dsn)
    async with sending(servers) as send:
        began = time.perf_counter()
        position = 0
        while position < EVENTS:
            batch = []
            for row in await connection.fetch(WHOLE, position, BATCH):
                event: Event[Any] = Event(
                    row[2],
                    decode(row[5]),
                    event_id=row[1],
                    key=row[3],
                    position=row[0],
                    created_at=datetime.fromtimestamp(row[9], UTC),
                )
                batch.append(Plain().wrap(event, "orders", epoch=1, prefix="ce_"))
                position = row[0]
            await send(batch)
            await connection.execute("UPDATE by_hand SET position = $1", position)
        taken = time.perf_counter() - began
    await connection.close()
    return taken


@asynccontextmanager
async def sending(servers: str) -> AsyncIterator[Callable[[Sequence[Message]], Awaitable[None]]]:
    producer = AIOKafkaProducer(
        bootstrap_servers=servers, enable_idempotence=True, max_batch_size=PACK
    )
    await producer.start()

    async def send(batch: Sequence[Message]) -> None:
        sent = []
        for each in batch:
            headers = [(name, value.encode()) for name, value in each.headers.items()]
            key = (each.key or "").encode()
            sent.append(await producer.send(each.destination, each.body, key, headers=headers))
        await asyncio.gather(*sent)

    yield send
    await producer.stop()


async def through_the_relay(servers: str, waiting: Sequence[Sequence[Message]]) -> float:
    relay = Kafka(servers)
    began = time.perf_counter()
    for batch in waiting:
        assert not any(await relay.send(batch))
    taken = time.perf_counter() - began
    await relay.close()
    return taken


async def run(postgres: EmbeddedPostgres, report: Report) -> None:
    engine = create_async_engine(postgres.url("asyncpg"))
    async with engine.begin() as connection:
        await connection.run_sync(migrate, Outbox().settings.names)
        await connection.execute(text("CREATE TABLE by_hand AS SELECT 0::bigint AS position"))
    await fill(engine, EVENTS)
    with cluster() as kafka:
        kafka.create("orders", PARTITIONS)
        await compete(postgres, engine, kafka.addresses, report)
    await engine.dispose()


async def compete(
    postgres: EmbeddedPostgres, engine: AsyncEngine, servers: str, report: Report
) -> None:
    outbox = Outbox()
    outbox.relay("kafka", Kafka(servers), on="order.placed", to="orders", batch_size=BATCH)
    waiting = batches("orders")
    spare_what_is_loaded()  # as the command does; the others have it too
    contestants: dict[str, Contestant] = {
        "aiokafka alone": lambda: by_hand(servers, waiting),
        "aiokafka and a cursor by hand": lambda: cursor_by_hand(servers, postgres.url()),
        "the Kafka relay, from memory": lambda: through_the_relay(servers, waiting),
        "the Kafka relay": lambda: drained(outbox, engine, "kafka"),
    }
    title = f"{EVENTS:,} messages to {PARTITIONS} partitions"
    goal = Goal(row="the Kafka relay", column="ratio", at_least=0.7)
    times = await take_turns(contestants, ROUNDS)
    report.add(speeds("kafka", title, times, EVENTS, goals=[goal]))


if __name__ == "__main__":
    main("bench_kafka", run)
