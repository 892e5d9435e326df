"""How much of what a broker's client can do is left when events go through a relay?

``python -m benchmarks.bench_relays``, with ``--only redis`` for one of them. Not among those of
``make bench``: it needs the brokers, at the addresses that the tests use; one that does not answer
is left out.

The same body and headers, batches of 500, uvloop, one process. Alone: the client sends what is
ready in memory, a batch after the other, and waits for the confirmation of each message. Relay: a
consumer reads the events from PostgreSQL, makes messages of them, sends them and writes its cursor.
They take turns, round by round. Goal: at least 0.7 of the client alone.

A contest is a function that yields a :class:`Contest`; put it into ``CONTESTS``.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import click
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from sa_outbox import Event, Outbox
from sa_outbox.consume.garbage import spare_what_is_loaded
from sa_outbox.relay import Message, Plain, Relay
from sa_outbox.schema import migrate

from .alone import measure
from .drains import drained, fill
from .measure import Contestant, speeds, take_turns
from .report import Goal, Report
from .shop import PAYLOAD

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
    from contextlib import AbstractAsyncContextManager

    from sa_outbox.embedded import EmbeddedPostgres

BATCH = 500
NAME = f"bench-{uuid4().hex}"


@dataclass(frozen=True)
class Contest:
    """One broker: the relay, and its client alone."""

    relay: Relay
    send: Callable[[Sequence[Message]], Awaitable[object]]
    """A batch by the client alone, all of it under way at once, until all is confirmed."""
    empty: Callable[[], Awaitable[object]]
    """Forget what has arrived."""
    count: Callable[[], Awaitable[int]]
    """How many messages have arrived."""
    destination: str = NAME


@asynccontextmanager
async def redis_streams() -> AsyncIterator[Contest]:
    import redis.asyncio  # noqa: PLC0415 - each has its own client

    from sa_outbox.relay.redis import RedisStreams  # noqa: PLC0415 - the same

    url = os.environ.get("RELAY_REDIS_URL", "redis://127.0.0.1:6379/0")
    client: Any
    async with redis.asyncio.Redis.from_url(url) as client:
        await client.ping()

        async def send(messages: Sequence[Message]) -> None:
            pipeline = client.pipeline(transaction=False)
            for each in messages:
                pipeline.xadd(NAME, {**each.headers, "body": each.body})
            await pipeline.execute()

        async def empty() -> None:
            await client.delete(NAME)
            notes = [each async for each in client.scan_iter(f"{{{NAME}}}:seen:*", 10_000)]
            for start in range(0, len(notes), 10_000):
                await client.unlink(*notes[start : start + 10_000])

        async def count() -> int:
            return int(await client.xlen(NAME))

        yield Contest(RedisStreams(url), send, empty, count)
        await empty()


@asynccontextmanager
async def jetstream() -> AsyncIterator[Contest]:
    import nats  # noqa: PLC0415 - each has its own client

    from sa_outbox.relay.nats import JetStream  # noqa: PLC0415 - the same

    url = os.environ.get("RELAY_NATS_URL", "nats://127.0.0.1:4222")
    client = await asyncio.wait_for(nats.connect(url, allow_reconnect=False), 5)
    stream = client.jetstream()
    await stream.add_stream(name=NAME, subjects=[NAME])

    async def send(messages: Sequence[Message]) -> None:
        await asyncio.gather(
            *[
                await stream.publish_async(
                    NAME,
                    each.body,
                    headers={**each.headers, "Nats-Msg-Id": str(each.event.event_id)},
                )
                for each in messages
            ]
        )

    async def empty() -> None:
        # Not purged: a stream remembers the ids, and would leave them out in the next round.
        await stream.delete_stream(NAME)
        await stream.add_stream(name=NAME, subjects=[NAME])

    async def count() -> int:
        return int((await stream.stream_info(NAME)).state.messages)

    yield Contest(JetStream(url), send, empty, count)
    await stream.delete_stream(NAME)
    await client.close()


@asynccontextmanager
async def rabbitmq() -> AsyncIterator[Contest]:
    import aio_pika  # noqa: PLC0415 - each has its own client

    from sa_outbox.relay.rabbitmq import RabbitMQ  # noqa: PLC0415 - the same

    url = os.environ.get("RELAY_RABBITMQ_URL", "amqp://guest:guest@127.0.0.1:5672/")
    connection = await aio_pika.connect(url, timeout=5)
    channel = await connection.channel(on_return_raises=True)
    queue = await channel.declare_queue(NAME, durable=True)

    async def send(messages: Sequence[Message]) -> None:
        await asyncio.gather(
            *[
                channel.default_exchange.publish(
                    aio_pika.Message(
                        each.body,
                        headers=dict(each.headers),
                        content_type=each.content_type,
                        message_id=str(each.event.event_id),
                        delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
                    ),
                    NAME,
                )
                for each in messages
            ]
        )

    async def count() -> int:
        found = await channel.declare_queue(NAME, passive=True)
        return int(found.declaration_result.message_count or 0)

    yield Contest(RabbitMQ(url), send, queue.purge, count)
    await queue.delete(if_unused=False, if_empty=False)
    await connection.close()


CONTESTS: dict[str, Callable[[], AbstractAsyncContextManager[Contest]]] = {
    "redis": redis_streams,
    "nats": jetstream,
    "rabbitmq": rabbitmq,
}


def ready(contest: Contest, events: int) -> list[Message]:
    """What the relay will send, made before the time is taken."""
    now = datetime.now(UTC)
    made = []
    for number in range(events):
        event = Event(
            "order.placed",
            PAYLOAD,
            key=f"customer-{number % 1000}",
            position=number,
            created_at=now,
        )
        prefix = contest.relay.attribute_prefix
        made.append(Plain().wrap(event, contest.destination, epoch=1, prefix=prefix))
    return made


async def alone(contest: Contest, events: int) -> float:
    messages = ready(contest, events)
    await contest.empty()
    gc.collect()
    began = time.perf_counter()
    for start in range(0, events, BATCH):
        await contest.send(messages[start : start + BATCH])
    taken = time.perf_counter() - began
    assert await contest.count() == events
    return taken


async def relayed(contest: Contest, outbox: Outbox, engine: AsyncEngine, events: int) -> float:
    await contest.empty()
    gc.collect()
    taken = await drained(outbox, engine, "relay")
    assert await contest.count() == events
    return taken


async def compete(name: str, engine: AsyncEngine, events: int, rounds: int, report: Report) -> None:
    async with CONTESTS[name]() as contest:
        outbox = Outbox()
        outbox.relay(
            "relay", contest.relay, on="order.placed", to=contest.destination, batch_size=BATCH
        )
        contestants: dict[str, Contestant] = {
            f"{name}: the client alone": lambda: alone(contest, events),
            f"{name}: the relay, through a consumer": lambda: relayed(
                contest, outbox, engine, events
            ),
        }
        title = f"{name}: {events:,} events of {len(json.dumps(PAYLOAD))} bytes, batches of {BATCH}"
        goal = Goal(row=list(contestants)[1], column="ratio", at_least=0.7)
        times = await take_turns(contestants, rounds)
        report.add(speeds(name, title, times, events, goals=[goal]))


async def run(
    server: EmbeddedPostgres, report: Report, names: Sequence[str], events: int, rounds: int
) -> None:
    engine = create_async_engine(server.url("asyncpg"))
    async with engine.begin() as connection:
        await connection.run_sync(migrate, Outbox().settings.names)
    await fill(engine, events)
    for name in names:
        try:
            await compete(name, engine, events, rounds, report)
        except (OSError, TimeoutError) as error:
            print(f"\n{name}: left out, nobody answers: {type(error).__name__}")
    await engine.dispose()


@click.command()
@click.option("--events", default=20_000, show_default=True, help="A multiple of 500.")
@click.option("--rounds", default=5, show_default=True)
@click.option("--only", multiple=True, type=click.Choice(sorted(CONTESTS)))
@click.option("--record", is_flag=True, help="Write the file in benchmarks/results.")
def main(*, events: int, rounds: int, only: tuple[str, ...], record: bool) -> None:
    async def chosen(server: EmbeddedPostgres, report: Report) -> None:
        spare_what_is_loaded()  # as the command does; the clients have it too
        await run(server, report, only or tuple(CONTESTS), events, rounds)

    measure("bench_relays", chosen, record=record)


if __name__ == "__main__":
    main()
