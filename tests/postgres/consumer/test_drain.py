"""``drain``: until everything that is committed now is handled."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import anyio
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from sa_outbox import Event, Outbox
from sa_outbox.consumer import drain
from sa_outbox.errors import SchemaError
from sa_outbox.observe import LeaseDropped
from tests.support import PATIENCE, comes_true

from .conftest import LATER, QUICK, Consuming, Database, Producer, make_consumer

pytestmark = pytest.mark.anyio


async def test_drain_handles_what_is_there_and_returns(
    outbox: Outbox, producer: Producer, async_engine: AsyncEngine, database: Database
) -> None:
    got: list[int] = []

    @outbox.listener("billing", on="order.*")
    async def charge(event: Event[Any]) -> None:
        got.append(event.payload["n"])

    @outbox.listener("mail", on="order.*", order="total")
    async def write(event: Event[Any], session: AsyncSession) -> None:
        got.append(event.payload["n"])

    producer.add(1, 2, 3)
    consumer, _ = make_consumer(outbox, async_engine)
    await consumer.drain()

    assert sorted(got) == [1, 1, 2, 2, 3, 3]
    assert consumer.reason == "drained"
    assert database.rows("SELECT name FROM outbox_listeners WHERE locked_by IS NOT NULL") == []


async def test_drain_of_an_empty_log_returns(outbox: Outbox, async_engine: AsyncEngine) -> None:
    @outbox.listener("billing", on="order.*")
    async def charge(event: Event[Any]) -> None: ...

    consumer, _ = make_consumer(outbox, async_engine)
    with anyio.fail_after(PATIENCE):
        await consumer.drain()


async def test_drain_of_a_running_consumer_leaves_it_running(
    outbox: Outbox, producer: Producer, consuming: Consuming
) -> None:
    got: list[int] = []

    @outbox.listener("billing", on="order.*")
    async def charge(event: Event[Any]) -> None:
        got.append(event.payload["n"])

    async with consuming(outbox) as running:
        for n in range(5):
            producer.add(n)
            await running.consumer.drain()
            assert got == list(range(n + 1))


async def test_drain_waits_for_handlers_that_run(
    outbox: Outbox, producer: Producer, consuming: Consuming
) -> None:
    begun, hurry = anyio.Event(), anyio.Event()
    ended = False

    @outbox.listener("billing", on="order.*")
    async def charge(event: Event[Any]) -> None:
        nonlocal ended
        begun.set()
        await hurry.wait()
        ended = True

    producer.add(1)

    async with consuming(outbox) as running, anyio.create_task_group() as tasks:
        tasks.start_soon(running.consumer.drain)
        await begun.wait()
        hurry.set()

    assert ended


async def test_drain_does_not_wait_for_events_that_come_later(
    outbox: Outbox, producer: Producer, async_engine: AsyncEngine
) -> None:
    """Every handler call adds another event: a drain of "everything" would never end."""

    @outbox.listener("billing", on="order.*")
    async def charge(event: Event[Any], session: AsyncSession) -> None:
        producer.add(event.payload["n"] + 1)

    producer.add(1)
    consumer, _ = make_consumer(outbox, async_engine)
    with anyio.fail_after(PATIENCE):
        await consumer.drain()


async def test_drain_does_not_wait_for_later_events_of_a_listener_of_another_consumer(
    outbox: Outbox, producer: Producer, consuming: Consuming
) -> None:
    @outbox.listener("billing", on="order.*")
    async def charge(event: Event[Any], session: AsyncSession) -> None:
        producer.add(event.payload["n"] + 1)

    producer.add(1)

    async with consuming(outbox), consuming(outbox) as second:
        with anyio.fail_after(PATIENCE):
            await second.consumer.drain()


@pytest.mark.parametrize("order", ["total", "key"])
async def test_drain_waits_for_retries(
    order: Any, outbox: Outbox, producer: Producer, async_engine: AsyncEngine
) -> None:
    attempts: list[int] = []

    @outbox.listener("billing", on="order.*", order=order, retry=QUICK)
    async def charge(event: Event[Any]) -> None:
        attempts.append(event.payload["n"])
        if len(attempts) < 3:
            raise ValueError("not yet")

    producer.add(1, key="a")
    consumer, _ = make_consumer(outbox, async_engine)
    await consumer.drain()

    assert attempts == [1, 1, 1]


async def test_drain_is_over_soon_after_the_last_retry_of_a_key(
    outbox: Outbox, producer: Producer, async_engine: AsyncEngine
) -> None:
    """The keys of parked deliveries are not read after each failure; they are read soon after."""
    attempts: list[int] = []

    @outbox.listener("billing", on="order.*", order="key", retry=QUICK)
    async def charge(event: Event[Any]) -> None:
        attempts.append(event.payload["n"])
        if len(attempts) < 3:
            raise ValueError("not yet")

    producer.add(1, key="a")
    consumer, _ = make_consumer(outbox, async_engine, lease_duration=timedelta(minutes=10))
    with anyio.fail_after(PATIENCE):
        await consumer.drain()

    assert attempts == [1, 1, 1]


@pytest.mark.parametrize("order", ["total", "key"])
async def test_drain_without_retries_leaves_what_failed_for_the_next_time(
    order: Any, outbox: Outbox, producer: Producer, async_engine: AsyncEngine
) -> None:
    attempts: list[int] = []

    @outbox.listener("billing", on="order.*", order=order, retry=LATER)
    async def charge(event: Event[Any]) -> None:
        attempts.append(event.payload["n"])
        raise ValueError("not yet")

    producer.add(1, key="a")
    consumer, _ = make_consumer(outbox, async_engine)
    with anyio.fail_after(PATIENCE):
        await consumer.drain(retries=False)

    assert attempts == [1]


async def test_drain_does_not_wait_for_scheduled_events(
    outbox: Outbox, producer: Producer, async_engine: AsyncEngine
) -> None:
    got: list[int] = []

    @outbox.listener("billing", on="order.*")
    async def charge(event: Event[Any]) -> None:
        got.append(event.payload["n"])

    producer.add(1, delay=timedelta(hours=1))
    producer.add(2)
    consumer, _ = make_consumer(outbox, async_engine)
    with anyio.fail_after(PATIENCE):
        await consumer.drain()

    assert got == [2]


async def test_drain_waits_for_the_consumer_that_holds_the_listener(
    outbox: Outbox, producer: Producer, consuming: Consuming
) -> None:
    hurry, begun = anyio.Event(), anyio.Event()
    got: list[int] = []

    @outbox.listener("billing", on="order.*")
    async def charge(event: Event[Any]) -> None:
        begun.set()
        await hurry.wait()
        got.append(event.payload["n"])

    producer.add(1, 2)

    async with (
        consuming(outbox),
        consuming(outbox) as second,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(second.consumer.drain)
        await begun.wait()
        hurry.set()

    assert got == [1, 2]


async def test_drain_without_retries_leaves_a_listener_to_the_consumer_that_holds_it(
    outbox: Outbox, producer: Producer, consuming: Consuming
) -> None:
    hurry, begun = anyio.Event(), anyio.Event()

    @outbox.listener("billing", on="order.*")
    async def charge(event: Event[Any]) -> None:
        begun.set()
        await hurry.wait()

    producer.add(1)

    async with consuming(outbox), consuming(outbox) as second:
        await begun.wait()
        with anyio.fail_after(PATIENCE):
            await second.consumer.drain(retries=False)
        hurry.set()


async def test_drain_takes_over_what_the_other_consumer_leaves(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    begun = anyio.Event()

    @outbox.listener("billing", on="order.*")
    async def charge(event: Event[Any], session: AsyncSession) -> None:
        values = {"n": event.payload["n"]}
        await session.execute(text("INSERT INTO effects VALUES ('billing', :n)"), values)
        begun.set()

    producer.add(*range(50))

    async with consuming(outbox) as second, anyio.create_task_group() as tasks:
        await second.stop()
        async with consuming(outbox) as first:
            third, _ = make_consumer(outbox, second.consumer._database)
            tasks.start_soon(third.drain)
            await begun.wait()
            await first.stop()
        await comes_true(lambda: len(database.effects("billing")) == 50)

    assert database.effects("billing") == list(range(50))


@pytest.mark.woken_by("notify")
async def test_drain_waits_for_a_listener_that_is_lost_and_not_given_back_yet(
    outbox: Outbox, producer: Producer, async_engine: AsyncEngine, consuming: Consuming
) -> None:
    begun = anyio.Event()
    attempts = 0

    @outbox.listener("billing", on="order.*")
    async def charge(event: Event[Any]) -> None:
        nonlocal attempts
        attempts += 1
        begun.set()
        if attempts == 1:
            await anyio.sleep_forever()

    producer.add(1)
    async with consuming(outbox) as running, async_engine.connect() as locked:
        await begun.wait()
        services = running.consumer._services
        assert services is not None
        (lease,) = services.leases.held.values()
        # While somebody has this lock, the lease can't be given back.
        await locked.execute(text("SELECT FROM outbox_listeners FOR UPDATE"))
        services.workload.holder.drop(lease)
        await running.recorder.seen(LeaseDropped)
        await services.leases.claim()
        assert not await drain._is_drained(services, 0, [], (), retries=False, others=False)
        await locked.rollback()

        await running.consumer.drain(retries=False)
        assert attempts == 2


@pytest.mark.woken_by("notify")
async def test_drain_waits_for_what_is_claimed_while_it_asks_about_others(
    outbox: Outbox,
    producer: Producer,
    database: Database,
    consuming: Consuming,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, answered = anyio.Event(), anyio.Event()
    handled = 0

    @outbox.listener("billing", on="order.*")
    async def charge(event: Event[Any]) -> None:
        nonlocal handled
        begun.set()
        await answered.wait()
        handled += 1

    async def behind(*arguments: Any, **bounds: Any) -> bool:
        if not answered.is_set():
            database.rows("UPDATE outbox_listeners SET locked_by = NULL, lease_expires_at = NULL")
            database.rows("SELECT pg_notify('outbox', 'released')")
            await begun.wait()
        is_behind = await ask(*arguments, **bounds)
        if not answered.is_set():
            assert is_behind
        answered.set()
        return is_behind

    ask = drain._behind
    monkeypatch.setattr(drain, "_behind", behind)
    async with consuming(outbox):
        pass
    leased = "locked_by = 'another', lease_expires_at = now() + interval '1 hour'"
    database.rows(f"UPDATE outbox_listeners SET {leased}")
    producer.add(1)
    async with consuming(outbox, poll_interval=timedelta(milliseconds=50)) as running:
        await running.consumer.drain()
        assert handled == 1


@pytest.mark.parametrize("order", ["none", "key"])
async def test_drain_leaves_a_listener_that_is_paused(
    order: Any, outbox: Outbox, producer: Producer, async_engine: AsyncEngine, database: Database
) -> None:
    got: list[int] = []

    @outbox.listener("billing", on="order.*", order=order)
    async def charge(event: Event[Any]) -> None:
        got.append(event.payload["n"])

    await make_consumer(outbox, async_engine)[0].drain()
    database.rows("UPDATE outbox_listeners SET paused_at = clock_timestamp()")
    producer.add(1)
    consumer, _ = make_consumer(outbox, async_engine)
    with anyio.fail_after(PATIENCE):
        await consumer.drain()

    assert got == []


async def test_drain_raises_what_the_consumer_raises(
    outbox: Outbox, producer: Producer, database: Database, async_engine: AsyncEngine
) -> None:
    """Not a group of errors: nobody expects that of a function that looks like one call."""

    @outbox.listener("billing", on="order.*")
    async def charge(event: Event[Any]) -> None: ...

    database.rows("ALTER SEQUENCE outbox_id_seq CACHE 10")
    try:
        consumer, _ = make_consumer(outbox, async_engine)
        with pytest.raises(SchemaError):
            await consumer.drain()
    finally:
        database.rows("ALTER SEQUENCE outbox_id_seq CACHE 1")
