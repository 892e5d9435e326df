"""From Kafka into the service's own log, each message once: ``python -m shipping.receive``.

It does no work of its own, so a partition never waits for a slow or a failing handler: the
listeners do the work, with retries and dead letters. One transaction marks the messages in the
inbox and adds their events. Only then is Kafka's position committed. If the process dies in
between, they come again, and the inbox knows them.

An error of the database ends the process; whatever started it starts it again.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from itertools import chain
from typing import Any

import structlog
from aiokafka import AIOKafkaConsumer, ConsumerRecord
from aiokafka.errors import CommitFailedError

from sa_outbox import AsyncOutboxSession, OutboxError, event_context

from .database import Session, engine, outbox
from .models import Base

log = structlog.get_logger()


async def main() -> None:
    stopping = asyncio.Event()
    for each in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(each, stopping.set)
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    consumer = AIOKafkaConsumer(
        "orders",
        bootstrap_servers=os.environ["KAFKA"],
        group_id="shipping",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    async with consumer:
        log.info("receiving")
        while not stopping.is_set():
            found = await consumer.getmany(timeout_ms=500, max_records=200)
            if messages := list(chain.from_iterable(found.values())):
                await receive(messages)
                await commit(consumer)
    await engine.dispose()


async def receive(messages: list[ConsumerRecord[Any, Any]]) -> None:
    async with Session.begin() as session:
        new = [await add_once(session, each) for each in messages]
    log.info("received", new=new.count(True), seen_before=new.count(False))


async def commit(consumer: AIOKafkaConsumer) -> None:
    try:
        await consumer.commit()
    except CommitFailedError:  # others have the partitions now, and get the messages again
        log.info("the group was rebalanced")


async def add_once(session: AsyncOutboxSession, message: ConsumerRecord[Any, Any]) -> bool:
    """True if this message is new."""
    headers = {name: value.decode("utf-8", "replace") for name, value in message.headers}
    place = f"{message.topic}/{message.partition}/{message.offset}"
    message_id = headers.get("event_id", place)
    async with outbox.inbox.once(session, message_id, consumer="shipping") as first:
        if first:
            try:
                add(session, headers, message)
            except (KeyError, ValueError, OutboxError) as error:
                # It must not stop those behind it: a listener makes it a dead letter.
                unreadable = {"place": place, "error": str(error), "value": repr(message.value)}
                session.add_event("message.unreadable", unreadable)
    return first


def add(
    session: AsyncOutboxSession, headers: dict[str, str], message: ConsumerRecord[Any, Any]
) -> None:
    """The event, as it was there: its type, payload and key, and the request it came from."""
    with event_context(
        request_id=headers.get("request_id"),
        correlation_id=headers.get("correlation_id", headers["event_id"]),
    ):
        key = None if message.key is None else message.key.decode()
        session.add_event(headers["event_type"], json.loads(message.value), key=key)


if __name__ == "__main__":
    asyncio.run(main())
