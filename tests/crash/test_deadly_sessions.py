"""An event whose handler takes the whole server down, each time: it comes back, the event ends."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import anyio
import psycopg
import pytest
from sqlalchemy import create_engine, make_url, text
from sqlalchemy.ext.asyncio import AsyncSession

from sa_outbox import Event, Outbox, RetryPolicy, schema
from sa_outbox.consumer import Consumer, ConsumerSettings
from sa_outbox.consumer.fault.suspects import FREE_OUTAGES
from sa_outbox.embedded import EmbeddedPostgres
from sa_outbox.observe import AttemptFailed, DeliverySettled
from sa_outbox.policy.order import Order
from sa_outbox.settings import Names
from tests.support.recorder import Recorder

pytestmark = [pytest.mark.anyio, pytest.mark.long, pytest.mark.timeout(240)]

PATIENT = 120.0
DEADLY, COUNT, ATTEMPTS = 5, 30, 2
EFFECT = text("INSERT INTO effects VALUES (:n)")


@pytest.fixture
def dsn() -> Iterator[str]:
    """A server of the test's own: a backend that is killed makes it restart."""
    # What a backend has given to the system outlives it: fsync is for systems that crash.
    with EmbeddedPostgres(settings={"synchronous_commit": "on"}) as server:
        address = server.url()
        schema.transact(address, lambda connection: schema.migrate(connection, Names()))
        with psycopg.connect(address) as connection:
            connection.execute("CREATE TABLE effects (n bigint)")
        yield address


def add(outbox: Outbox, dsn: str) -> None:
    engine = create_engine(make_url(dsn).set(drivername="postgresql+psycopg"))
    with outbox.sessionmaker(engine).begin() as session:
        for n in range(COUNT):
            session.add_event("order.placed", {"n": n}, key=str(n))
    engine.dispose()


@asynccontextmanager
async def consuming(outbox: Outbox, dsn: str) -> AsyncIterator[Recorder]:
    recorder = Recorder()
    settings = ConsumerSettings(poll_interval_without_notify=timedelta(milliseconds=50))
    consumer = Consumer(outbox, dsn, settings=settings, observers=[recorder])
    async with anyio.create_task_group() as tasks:
        await tasks.start(lambda *, task_status: consumer.run(task_status=task_status))
        yield recorder
        consumer.stop()


@pytest.mark.parametrize("order", ["key", "total", "none"])
async def test_an_event_that_crashes_the_server_each_time_is_a_dead_letter(
    order: Order, dsn: str
) -> None:
    """And those that were in flight at the same time are none, though they may not fail once."""
    outbox = Outbox(notify="off")
    calls: list[int] = []
    retry = RetryPolicy(attempts=ATTEMPTS, base=timedelta(milliseconds=10), jitter=False)
    concurrency = 1 if order == "total" else 4

    @outbox.listener("billing", on="order.*", order=order, concurrency=concurrency, retry=retry)
    async def charge(event: Event[Any], session: AsyncSession) -> None:
        n = event.payload["n"]
        await session.execute(EFFECT, {"n": n})
        if n == DEADLY:
            calls.append(n)
            pid = (await session.execute(text("SELECT pg_backend_pid()"))).scalar_one()
            os.kill(pid, signal.SIGKILL)
            await session.execute(text("SELECT pg_sleep(5)"))
        await session.execute(text("SELECT pg_sleep(0.01)"))

    add(outbox, dsn)

    async with consuming(outbox, dsn) as recorder:
        await recorder.seen(DeliverySettled, outcome="dead", within=PATIENT)
        await recorder.seen(DeliverySettled, outcome="done", times=COUNT - 1, within=PATIENT)

    with psycopg.connect(dsn) as connection:
        dead = connection.execute("SELECT position, attempts FROM outbox_dead_letters").fetchall()
        effects = connection.execute("SELECT n FROM effects ORDER BY n").fetchall()
    assert dead == [(DEADLY + 1, ATTEMPTS)]
    assert [n for (n,) in effects] == [n for n in range(COUNT) if n != DEADLY]
    assert len(calls) <= FREE_OUTAGES + ATTEMPTS
    assert {each.position for each in recorder.of(AttemptFailed)} == {DEADLY + 1}
