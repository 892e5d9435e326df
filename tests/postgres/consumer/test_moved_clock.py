"""A test moves the clock: days pass in a moment, for everything that goes by time.

Polls are an hour apart and the lease lasts three, so nothing but the move wakes a consumer.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from uuid import uuid4

import anyio
import pytest
from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from sa_outbox import Event, Outbox, RetryPolicy
from sa_outbox.clock import Clock
from sa_outbox.clock import clock as the_clock
from sa_outbox.observe import LeaseDropped, LeasesKept, PartitionDropped, Ticked
from sa_outbox.operations.overview import overview
from sa_outbox.policy.order import Order
from tests.support import comes_true

from .conftest import Consuming, Database, Producer
from .kept import SETTINGS, Kept

pytestmark = [pytest.mark.anyio, pytest.mark.woken_by("notify")]

HOUR = timedelta(hours=1)
BY_ITSELF: dict[str, Any] = {
    "poll_interval": HOUR,
    "poll_interval_without_notify": HOUR,
    "probe_interval": HOUR,
    "verify_interval": HOUR,
    "lease_duration": 3 * HOUR,
}
SLOW = RetryPolicy(schedule=[timedelta(days=3)] * 3)
ORDERS = pytest.mark.parametrize("order", ["total", "key", "none"])


@pytest.fixture
def clock() -> Iterator[Clock]:
    yield the_clock
    the_clock.reset()


def listen(outbox: Outbox, *, fails: bool = False, **options: Any) -> list[int]:
    got: list[int] = []

    @outbox.listener("billing", on="order.*", **options)
    async def charge(event: Event[Any]) -> None:
        got.append(event.payload["n"])
        if fails:
            raise ValueError("declined")

    return got


class TestRetries:
    @ORDERS
    async def test_a_policy_of_days_comes_to_its_dead_letter(
        self,
        order: Order,
        clock: Clock,
        outbox: Outbox,
        producer: Producer,
        database: Database,
        consuming: Consuming,
    ) -> None:
        got = listen(outbox, fails=True, retry=SLOW, order=order)
        producer.add(1, key="a")

        async with consuming(outbox, **BY_ITSELF) as running:
            for attempt in (1, 2, 3):
                await running.settled("billing", outcome="retry", attempt=attempt)
                clock.advance(days=3)
            await running.dead("billing")

        assert got == [1, 1, 1, 1]
        [dead] = database.dead_letters("billing")
        assert dead.attempts == 4
        times = [datetime.fromisoformat(each["at"]) for each in dead.errors]
        gaps = [later - earlier for earlier, later in pairwise(times)]
        assert all(timedelta(days=3) <= gap < timedelta(days=3, hours=1) for gap in gaps)

    @ORDERS
    async def test_a_moment_less_is_not_enough(
        self,
        order: Order,
        clock: Clock,
        outbox: Outbox,
        producer: Producer,
        consuming: Consuming,
    ) -> None:
        got = listen(outbox, fails=True, retry=SLOW, order=order)
        producer.add(1, key="a")

        async with consuming(outbox, **BY_ITSELF) as running:
            await running.settled("billing", outcome="retry")
            clock.advance(days=2, hours=23)
            await running.recorder.seen(LeasesKept)
            await running.consumer.drain(retries=False)
            assert got == [1]
            clock.advance(hours=1)
            await running.settled("billing", outcome="retry", attempt=2)

    async def test_each_drain_is_another_day(
        self, clock: Clock, outbox: Outbox, producer: Producer, consuming: Consuming
    ) -> None:
        got = listen(outbox, fails=True, retry=SLOW)
        producer.add(1)

        for attempts in (1, 2, 3, 4, 4):
            async with consuming(outbox) as running:
                await running.consumer.drain(retries=False)
            assert len(got) == attempts
            clock.advance(days=3)

    async def test_what_a_handler_wrote_is_settled_in_its_session_at_the_moved_time(
        self,
        clock: Clock,
        outbox: Outbox,
        producer: Producer,
        database: Database,
        consuming: Consuming,
    ) -> None:
        @outbox.listener("billing", on="order.*")
        async def charge(event: Event[Any], session: AsyncSession) -> None:
            pass

        producer.add(1)
        clock.advance(days=3)

        async with consuming(outbox, **BY_ITSELF) as running:
            await running.done("billing")
            row = database.listener("billing")

        assert row.updated_at - datetime.now(UTC) > timedelta(days=2)
        assert row.created_at - datetime.now(UTC) < timedelta(days=1)


@ORDERS
async def test_an_event_for_next_month_is_handled_when_the_month_has_passed(
    order: Order,
    clock: Clock,
    outbox: Outbox,
    producer: Producer,
    database: Database,
    consuming: Consuming,
) -> None:
    got = listen(outbox, order=order)
    producer.add(1, delay=timedelta(days=31))
    producer.add(2, run_at=datetime.now(UTC) + timedelta(days=32))

    async with consuming(outbox, **BY_ITSELF) as running:
        await comes_true(lambda: len(database.deliveries("billing")) == 2)
        clock.advance(days=31)
        await running.done("billing")
        assert got == [1]
        clock.advance(days=1)
        await running.done("billing", 2)

    assert got == [1, 2]


async def test_a_delay_counts_from_the_moved_clock(
    clock: Clock, outbox: Outbox, producer: Producer, database: Database
) -> None:
    clock.advance(days=31)
    producer.add(1, delay=timedelta(days=1))

    ahead = database.value("SELECT run_at FROM outbox") - datetime.now(UTC)
    assert timedelta(days=31, hours=23) < ahead <= timedelta(days=32)


async def test_a_tick_of_a_cron_comes_at_once(
    clock: Clock, outbox: Outbox, consuming: Consuming
) -> None:
    got: list[object] = []

    @outbox.listener("reports", on="report.*")
    async def report(event: Event[Any]) -> None:
        got.append(event.headers["tick"])

    outbox.cron("0 9 1 1 *", "report.due", time_zone="UTC")

    async with consuming(outbox, **BY_ITSELF) as running:
        newyear = datetime(datetime.now(UTC).year + 1, 1, 1, 9, tzinfo=UTC)
        clock.move_to(newyear)
        [ticked] = await running.recorder.seen(Ticked)
        await running.done("reports")

    assert (ticked.tick, ticked.missed) == (newyear, 0)
    assert [datetime.fromisoformat(str(each)) for each in got] == [newyear]


class TestLeases:
    async def test_one_that_a_process_left_behind_expires(
        self,
        clock: Clock,
        outbox: Outbox,
        producer: Producer,
        database: Database,
        consuming: Consuming,
    ) -> None:
        got = listen(outbox)
        async with consuming(outbox):
            pass  # registers the listener
        database.rows(
            "UPDATE outbox_listeners SET locked_by = 'a process that died',"
            " lease_expires_at = clock_timestamp() + interval '3 h'"
        )
        producer.add(1)

        async with consuming(outbox, **BY_ITSELF) as running:
            clock.advance(hours=2, minutes=50)
            await running.recorder.seen(LeasesKept)
            assert got == []
            clock.advance(minutes=11)
            await running.done("billing")

        assert got == [1]

    async def test_a_range_that_a_process_left_behind_expires(
        self,
        clock: Clock,
        outbox: Outbox,
        producer: Producer,
        database: Database,
        consuming: Consuming,
    ) -> None:
        got = listen(outbox, order="none")
        async with consuming(outbox):
            pass
        producer.add(1)
        last = database.value("SELECT max(id) FROM outbox")
        database.rows("UPDATE outbox_listeners SET last_processed_id = :last", last=last)
        database.rows(
            "INSERT INTO outbox_ranges (listener, last_processed_id, gaps, locked_by, lease_token,"
            " lease_expires_at) VALUES ('billing', :last, jsonb_build_array(jsonb_build_array("
            "CAST(:last AS bigint), CAST(:last AS bigint))), 'a process that died', 1,"
            " clock_timestamp() + interval '3 h')",
            last=last,
        )

        async with consuming(outbox, **BY_ITSELF) as running:
            assert got == []
            clock.advance(hours=4)
            await running.done("billing")

        assert got == [1]

    @ORDERS
    async def test_a_consumer_that_is_alive_keeps_its_own_over_any_time(
        self,
        order: Order,
        clock: Clock,
        outbox: Outbox,
        producer: Producer,
        consuming: Consuming,
    ) -> None:
        begun, hurry = anyio.Event(), anyio.Event()
        attempts = 0

        @outbox.listener("billing", on="order.*", order=order)
        async def charge(event: Event[Any]) -> None:
            nonlocal attempts
            attempts += 1
            begun.set()
            await hurry.wait()

        producer.add(1)

        async with consuming(outbox, **BY_ITSELF) as running:
            await begun.wait()
            clock.advance(days=1)
            await running.recorder.seen(LeasesKept)
            await anyio.to_thread.run_sync(lambda: clock.advance(days=30))
            await running.recorder.seen(LeasesKept, times=2)
            hurry.set()
            await running.done("billing")

        assert attempts == 1
        assert running.recorder.of(LeaseDropped) == []


class TestRetention:
    async def test_events_go_when_they_are_old_enough(self, clock: Clock, kept: Kept) -> None:
        kept.write(15, hours_ago=0)
        kept.register("billing", 15)

        await kept.prune()
        assert len(kept.ids) == 15
        clock.advance(hours=2)
        await kept.prune()

        assert kept.ids == []

    async def test_a_running_consumer_removes_them_at_once(
        self, clock: Clock, kept: Kept, consuming: Consuming
    ) -> None:
        got = listen(kept.outbox)
        kept.write(15, hours_ago=0)

        async with consuming(
            kept.outbox, engine=kept.url, **BY_ITSELF, retention=SETTINGS.retention
        ) as running:
            await running.done("billing", 15)
            await running.consumer.drain()
            clock.advance(hours=2)
            await running.recorder.seen(PartitionDropped)

        assert len(got) == 15

    def test_a_mark_of_the_inbox_expires(self, clock: Clock, engine: Engine) -> None:
        inbox, message = Outbox().inbox, str(uuid4())

        def is_first() -> bool:
            with (
                Session(engine) as session,
                session.begin(),
                inbox.once(session, message, consumer="payments") as first,
            ):
                return first

        assert [is_first(), is_first()] == [True, False]
        clock.advance(days=365)
        assert [is_first(), is_first()] == [True, False]

    def test_an_idempotency_key_is_free_again(
        self, clock: Clock, producer: Producer, database: Database
    ) -> None:
        def add() -> int:
            producer.add(1, idempotency_key="o-1")
            count: int = database.value("SELECT count(*) FROM outbox")
            return count

        assert [add(), add()] == [1, 1]
        clock.advance(days=8)
        assert [add(), add()] == [2, 2]


async def test_an_operator_sees_the_moved_time(
    clock: Clock, outbox: Outbox, producer: Producer, engine: Engine, consuming: Consuming
) -> None:
    listen(outbox)
    async with consuming(outbox):
        pass
    producer.add(1)
    clock.advance(days=3)

    with engine.connect() as connection:
        seen = overview(connection, outbox.tables)

    [billing] = seen.listeners
    [cursor] = billing.cursors
    assert seen.at - datetime.now(UTC) > timedelta(days=2)
    assert cursor.lag_seconds is not None
    assert cursor.lag_seconds > timedelta(days=2).total_seconds()
