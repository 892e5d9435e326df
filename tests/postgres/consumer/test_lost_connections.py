"""Sessions that are lost with an event in flight: when that is the event's doing, and when not."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any

import anyio
import pytest
from sqlalchemy import URL, create_engine, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from sa_outbox import Event, Outbox, RetryPolicy
from sa_outbox.clock import Clock
from sa_outbox.clock import clock as the_clock
from sa_outbox.observe import AttemptFailed
from sa_outbox.policy.order import Order
from tests.support import PATIENCE, comes_true

from .conftest import ONCE, QUICK, Consuming, Database, Producer, RunUntil

pytestmark = pytest.mark.anyio

EFFECT = text("INSERT INTO effects VALUES (:listener, :n)")
DIE = text("SELECT pg_terminate_backend(pg_backend_pid(), 0), pg_sleep(5)")
DEADLY = 3
HOURS = RetryPolicy(attempts=3, base=timedelta(hours=1), jitter=False)
"""No attempt that counts is made again unless the clock is moved."""


class Shop:
    """Listeners whose session ends whenever they handle the deadly event."""

    def __init__(self, outbox: Outbox) -> None:
        self.calls: list[int] = []
        self._outbox = outbox

    def listen(self, name: str = "billing", **options: Any) -> None:
        @self._outbox.listener(name, on="order.*", **{"retry": QUICK, **options})
        async def charge(event: Event[Any], session: AsyncSession) -> None:
            n = event.payload["n"]
            await session.execute(EFFECT, {"listener": name, "n": n})
            if n == DEADLY:
                self.calls.append(n)
                await session.execute(DIE)

    def listen_in_threads(self, name: str = "billing", **options: Any) -> None:
        @self._outbox.listener(name, on="order.*", **{"retry": QUICK, **options})
        def charge(event: Event[Any], session: Session) -> None:
            n = event.payload["n"]
            session.execute(EFFECT, {"listener": name, "n": n})
            if n == DEADLY:
                self.calls.append(n)
                session.execute(DIE)

    def listen_to_batches(self, name: str = "billing", **options: Any) -> None:
        @self._outbox.listener(name, on="order.*", **{"retry": QUICK, **options})
        async def charge(events: list[Event[Any]], session: AsyncSession) -> None:
            for event in events:
                n = event.payload["n"]
                await session.execute(EFFECT, {"listener": name, "n": n})
                if n == DEADLY:
                    self.calls.append(n)
                    await session.execute(DIE)


@pytest.fixture
def clock() -> Iterator[Clock]:
    yield the_clock
    the_clock.reset()


@pytest.fixture
def shop(outbox: Outbox) -> Shop:
    return Shop(outbox)


def add_all(producer: Producer) -> list[int]:
    """A hundred events and the deadly one, each with a key of its own; the innocent ones."""
    for n in range(101):
        producer.add(n, key=f"key {n}")
    return [n for n in range(101) if n != DEADLY]


def check_the_deadly(database: Database, calls: int, shop: Shop) -> None:
    (dead,) = database.dead_letters("billing")
    assert (dead.position, dead.reason, dead.attempts) == (DEADLY + 1, "attempts", 3)
    assert "terminating connection" in str(dead.errors) or "closed" in str(dead.errors)
    assert len(shop.calls) == calls


@pytest.mark.parametrize("order", ["key", "total", "none"])
async def test_an_event_that_ends_its_own_connection_is_a_dead_letter_after_its_attempts(
    order: Order,
    shop: Shop,
    producer: Producer,
    database: Database,
    run_until: RunUntil,
    outbox: Outbox,
) -> None:
    shop.listen(order=order)
    innocent = add_all(producer)

    running = await run_until(done=100, dead=1)

    check_the_deadly(database, 4, shop)  # the first loss is free
    assert database.effects("billing") == innocent
    assert len(running.recorder.of(AttemptFailed)) == 3


@pytest.mark.parametrize(("order", "driver"), [("key", "psycopg2"), ("none", "psycopg")])
async def test_a_sync_handler_that_ends_its_own_connection_has_failed_too(
    order: Order,
    driver: str,
    shop: Shop,
    producer: Producer,
    database: Database,
    run_until: RunUntil,
    outbox: Outbox,
    migrated_url: URL,
) -> None:
    shop.listen_in_threads(order=order)
    innocent = add_all(producer)
    engine = create_engine(migrated_url.set(drivername=f"postgresql+{driver}"))

    await run_until(done=100, dead=1, sync_engine=engine)
    engine.dispose()

    check_the_deadly(database, 4, shop)
    assert database.effects("billing") == innocent


@pytest.mark.parametrize("order", ["key", "total", "none"])
async def test_of_a_batch_the_event_that_ends_the_connection_is_found(
    order: Order,
    shop: Shop,
    producer: Producer,
    database: Database,
    run_until: RunUntil,
    outbox: Outbox,
) -> None:
    shop.listen_to_batches(order=order)
    innocent = add_all(producer)

    await run_until(done=100, dead=1)

    check_the_deadly(database, 4, shop)  # once with its batch, then alone
    assert database.effects("billing") == innocent


@pytest.mark.parametrize("order", ["key", "total", "none"])
async def test_others_are_handled_before_its_second_attempt_that_counts(
    order: Order,
    shop: Shop,
    producer: Producer,
    database: Database,
    consuming: Consuming,
    outbox: Outbox,
    clock: Clock,
) -> None:
    """No other listener waits for it, nor any other key. With order="total", later events of its
    own listener do."""
    shop.listen(order=order, retry=HOURS, concurrency=1 if order == "total" else 2)

    @outbox.listener("mail", on="order.*", order="total")
    async def send(event: Event[Any], session: AsyncSession) -> None:
        await session.execute(EFFECT, {"listener": "mail", "n": event.payload["n"]})

    innocent = add_all(producer)

    async with consuming(outbox) as running:
        await running.settled("billing", outcome="retry")
        await running.done("mail", 101)
        if order != "total":
            await running.done("billing", 100)
        meanwhile, calls = database.effects("billing"), len(shop.calls)
        clock.advance(hours=12)
        await running.settled("billing", times=2, outcome="retry")
        clock.advance(hours=12)
        await running.dead("billing")
        await running.done("billing", 100)

    assert meanwhile == (innocent[:DEADLY] if order == "total" else innocent)
    assert calls == 2  # the first loss is free
    assert database.effects("mail") == list(range(101))
    assert database.effects("billing") == innocent


async def test_the_first_loss_is_free_whatever_the_handler_raises_of_it(
    producer: Producer, database: Database, run_until: RunUntil, outbox: Outbox
) -> None:
    """The session's backend was killed; the handler tells of it in its own words."""
    calls: list[int] = []

    @outbox.listener("billing", on="order.*", retry=ONCE)
    async def charge(event: Event[Any], session: AsyncSession) -> None:
        calls.append(event.payload["n"])
        await session.execute(EFFECT, {"listener": "billing", "n": event.payload["n"]})
        if len(calls) == 1:
            pid = (await session.execute(text("SELECT pg_backend_pid()"))).scalar_one()
            database.rows("SELECT pg_terminate_backend(:pid, 5000)", pid=pid)
            raise ConnectionResetError("the mail server hung up")

    producer.add(1)

    running = await run_until(done=1)

    assert calls == [1, 1]
    assert running.recorder.of(AttemptFailed) == []


async def test_the_first_loss_is_free_for_a_sync_handler_that_raises_something_else(
    producer: Producer, database: Database, run_until: RunUntil, outbox: Outbox
) -> None:
    """Its driver has not noticed anything: it is asked."""
    calls: list[int] = []

    @outbox.listener("billing", on="order.*", retry=ONCE)
    def charge(event: Event[Any], session: Session) -> None:
        calls.append(event.payload["n"])
        pid = session.execute(text("SELECT pg_backend_pid()")).scalar_one()
        if len(calls) == 1:
            database.rows("SELECT pg_terminate_backend(:pid, 5000)", pid=pid)
            raise ValueError("of another connection")

    producer.add(1)

    running = await run_until(done=1)

    assert calls == [1, 1]
    assert running.recorder.of(AttemptFailed) == []


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_the_first_loss_is_free_when_the_handler_does_not_notice_it(
    kind: str, producer: Producer, database: Database, run_until: RunUntil, outbox: Outbox
) -> None:
    """It has done its part, and returns."""
    pids: list[int] = []

    def end(pid: int) -> None:
        pids.append(pid)
        if len(pids) == 1:
            database.rows("SELECT pg_terminate_backend(:pid, 5000)", pid=pid)

    if kind == "async":

        @outbox.listener("billing", on="order.*", retry=ONCE)
        async def charge(event: Event[Any], session: AsyncSession) -> None:
            end((await session.execute(text("SELECT pg_backend_pid()"))).scalar_one())
    else:

        @outbox.listener("billing", on="order.*", retry=ONCE)
        def charge_in_thread(event: Event[Any], session: Session) -> None:
            end(session.execute(text("SELECT pg_backend_pid()")).scalar_one())

    producer.add(1)

    running = await run_until(done=1)

    assert len(pids) == 2
    assert running.recorder.of(AttemptFailed) == []


async def test_an_event_whose_commit_ends_the_connection_does_not_loop(
    producer: Producer, database: Database, consuming: Consuming, outbox: Outbox
) -> None:
    database.rows(
        """
        CREATE TABLE deadly (n bigint);
        CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
            PERFORM pg_terminate_backend(pg_backend_pid(), 0), pg_sleep(5); RETURN NULL; END$$;
        CREATE CONSTRAINT TRIGGER dies AFTER INSERT ON deadly DEFERRABLE INITIALLY DEFERRED
            FOR EACH ROW EXECUTE FUNCTION die()
        """
    )
    calls: list[int] = []

    @outbox.listener("billing", on="order.*", retry=QUICK)
    async def charge(event: Event[Any], session: AsyncSession) -> None:
        calls.append(event.payload["n"])
        await session.execute(text("INSERT INTO deadly VALUES (1)"))

    producer.add(1)

    try:
        async with consuming(outbox) as running:
            await running.dead("billing")
    finally:
        database.rows("DROP TABLE deadly; DROP FUNCTION die")

    assert database.dead_letters("billing")[0].attempts == 3
    assert len(calls) == 4


async def test_an_error_of_a_handler_whose_connection_is_alive_is_an_attempt(
    producer: Producer, database: Database, run_until: RunUntil, outbox: Outbox
) -> None:
    @outbox.listener("billing", on="order.*", retry=ONCE)
    async def charge(event: Event[Any], session: AsyncSession) -> None:
        raise ConnectionResetError("the mail server hung up")

    producer.add(1)

    await run_until(dead=1)

    assert database.dead_letters("billing")[0].attempts == 1


async def test_a_handler_that_hides_the_loss_of_its_connection_does_not_loop(
    producer: Producer, database: Database, run_until: RunUntil, outbox: Outbox
) -> None:
    calls: list[int] = []

    @outbox.listener("billing", on="order.*", retry=QUICK)
    async def charge(event: Event[Any], session: AsyncSession) -> None:
        calls.append(event.payload["n"])
        with suppress(SQLAlchemyError):
            await session.execute(DIE)

    producer.add(1)

    await run_until(dead=1)

    assert database.dead_letters("billing")[0].attempts == 3
    assert len(calls) == 4


async def test_a_handler_that_idles_in_its_transaction_for_too_long_does_not_loop(
    producer: Producer, database: Database, run_until: RunUntil, outbox: Outbox
) -> None:
    """The engine's idle_in_transaction_session_timeout ends the session each time."""
    calls: list[int] = []

    @outbox.listener("billing", on="order.*", retry=QUICK)
    async def charge(event: Event[Any], session: AsyncSession) -> None:
        calls.append(event.payload["n"])
        pid = (await session.execute(text("SELECT pg_backend_pid()"))).scalar_one()
        await session.execute(text("SET LOCAL idle_in_transaction_session_timeout = '50ms'"))
        alive = "SELECT FROM pg_stat_activity WHERE pid = :pid"
        await comes_true(lambda: not database.rows(alive, pid=pid))
        await session.execute(EFFECT, {"listener": "billing", "n": event.payload["n"]})

    producer.add(1)

    await run_until(dead=1)

    assert database.dead_letters("billing")[0].attempts == 3
    assert len(calls) == 4


async def test_many_losses_that_meet_different_events_count_nothing(
    producer: Producer, database: Database, run_until: RunUntil, outbox: Outbox
) -> None:
    met: set[int] = set()

    @outbox.listener("billing", on="order.*", order="total", retry=ONCE)
    async def charge(event: Event[Any], session: AsyncSession) -> None:
        n = event.payload["n"]
        await session.execute(EFFECT, {"listener": "billing", "n": n})
        if n not in met:
            met.add(n)
            await session.execute(DIE)

    producer.add(*range(6))

    running = await run_until(done=6)

    assert database.effects("billing") == list(range(6))
    assert running.recorder.of(AttemptFailed) == []


async def test_an_outage_that_a_handler_notices_late_counts_nothing(
    producer: Producer, database: Database, consuming: Consuming, outbox: Outbox
) -> None:
    """All connections end at once. By the time that the handler's session finds out, the consumer
    has a new connection of its own: it is no witness that the server stayed up."""
    calls: list[int] = []

    @outbox.listener("billing", on="order.*", retry=ONCE)
    async def charge(event: Event[Any], session: AsyncSession) -> None:
        calls.append(event.payload["n"])
        if len(calls) <= 2:
            database.end_other_backends()
            await comes_true(database.backends)
        await session.execute(EFFECT, {"listener": "billing", "n": event.payload["n"]})

    producer.add(1)

    async with consuming(outbox) as running:
        await running.done("billing")

    assert len(calls) == 3
    assert running.recorder.of(AttemptFailed) == []
    assert database.effects("billing") == [1]


async def test_what_the_server_lacks_for_one_event_alone_is_that_event_s_failure(
    producer: Producer, database: Database, consuming: Consuming, outbox: Outbox
) -> None:
    """Out of memory, each time, while the others are done."""
    lacks = "DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '53200'; END $$"

    @outbox.listener("billing", on="order.*", retry=ONCE, concurrency=2)
    async def charge(event: Event[Any], session: AsyncSession) -> None:
        if event.payload["n"] == 0:
            await session.execute(text(lacks))

    producer.add(0, key="0")

    async with consuming(outbox) as running:
        with anyio.fail_after(PATIENCE):
            for n in itertools.count(1):
                producer.add(n, key=str(n))
                await running.done("billing", n)
                if database.dead_letters("billing"):
                    break

    (dead,) = database.dead_letters("billing")
    assert (dead.position, dead.attempts) == (1, 1)


async def test_what_the_server_lacks_for_everybody_is_waited_for(
    producer: Producer, database: Database, run_until: RunUntil, outbox: Outbox
) -> None:
    lacks = "DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '53100'; END $$"
    calls: list[int] = []

    @outbox.listener("billing", on="order.*", retry=ONCE, concurrency=5)
    async def charge(event: Event[Any], session: AsyncSession) -> None:
        calls.append(event.payload["n"])
        if len(calls) < 12:
            await session.execute(text(lacks))

    for n in range(5):
        producer.add(n, key=str(n))

    running = await run_until(done=5)

    assert running.recorder.of(AttemptFailed) == []


async def test_the_limit_of_temporary_files_is_no_outage(
    producer: Producer, database: Database, run_until: RunUntil, outbox: Outbox
) -> None:
    exceeded = "DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '53400'; END $$"

    @outbox.listener("billing", on="order.*", retry=ONCE)
    async def charge(event: Event[Any], session: AsyncSession) -> None:
        await session.execute(text(exceeded))

    producer.add(1)

    await run_until(dead=1)

    assert database.dead_letters("billing")[0].attempts == 1


async def test_an_event_that_lost_its_connection_once_and_a_drain(
    producer: Producer, consuming: Consuming, outbox: Outbox, shop: Shop, database: Database
) -> None:
    shop.listen()
    producer.add(DEADLY, 1, 2)

    async with consuming(outbox, lease_duration=timedelta(seconds=20)) as running:
        await running.consumer.drain()

    assert len(database.dead_letters("billing")) == 1
    await comes_true(lambda: database.deliveries("billing") == [])
