"""One consumer at a time works for a listener; after it, another one does."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import anyio
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from sa_outbox import Event, Outbox
from sa_outbox.observe import (
    BatchRead,
    CaughtUp,
    LeaseClaimed,
    LeaseDropped,
    LeaseReleased,
    Listening,
    ListenerChanged,
    ListenerOrphaned,
    Observation,
    WentCareful,
)

from .conftest import Consuming, Database, Producer, make_consumer

pytestmark = pytest.mark.anyio

EFFECT = text("INSERT INTO effects VALUES ('billing', :n)")
DIED = """
UPDATE outbox_listeners SET locked_by = 'somebody who died', lease_token = lease_token + 1,
    lease_expires_at = clock_timestamp() - interval '1 s'
"""
TAKEN = """
UPDATE outbox_listeners SET locked_by = 'somebody else', lease_token = lease_token + 1,
    lease_expires_at = clock_timestamp() + interval '1 h'
"""


def listen(outbox: Outbox) -> list[int]:
    got: list[int] = []

    @outbox.listener("billing", on="order.*")
    async def charge(event: Event[Any], session: AsyncSession) -> None:
        await session.execute(EFFECT, {"n": event.payload["n"]})
        got.append(event.payload["n"])

    return got


async def test_a_second_consumer_gets_nothing_while_the_first_holds_the_lease(
    outbox: Outbox, producer: Producer, consuming: Consuming
) -> None:
    listen(outbox)

    async with consuming(outbox) as first, consuming(outbox) as second:
        for n in range(5):
            producer.add(n)
        await first.done("billing", 5)

    assert second.recorder.of(LeaseClaimed) == []
    assert second.recorder.of(BatchRead) == []


async def test_a_second_consumer_takes_over_at_once_after_a_graceful_stop(
    outbox: Outbox, producer: Producer, consuming: Consuming, notify: str
) -> None:
    got = listen(outbox)

    async with consuming(outbox) as first, consuming(outbox) as second:
        if notify == "on":
            await second.recorder.seen(Listening)
        producer.add(1)
        await first.done("billing")
        await first.stop()
        [claimed] = await second.recorder.seen(LeaseClaimed, within=1)
        producer.add(2)
        await second.done("billing")

    assert got == [1, 2]
    assert (claimed.token, claimed.position, claimed.after_crash) == (2, 1, False)


async def test_a_graceful_stop_lets_the_handler_finish(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    begun, hurry = anyio.Event(), anyio.Event()

    @outbox.listener("billing", on="order.*")
    async def charge(event: Event[Any], session: AsyncSession) -> None:
        begun.set()
        await hurry.wait()
        await session.execute(EFFECT, {"n": event.payload["n"]})

    producer.add(1, 2)

    async with consuming(outbox) as running:
        await begun.wait()
        running.consumer.stop()
        hurry.set()
        await running.stopped.wait()

    assert database.effects("billing") == [1]
    assert database.listener("billing").last_processed_id == 1
    assert len(running.recorder.of(LeaseReleased)) == 1


async def test_a_handler_is_cut_off_when_the_grace_period_is_over(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    begun = anyio.Event()

    @outbox.listener("billing", on="order.*")
    async def charge(event: Event[Any], session: AsyncSession) -> None:
        await session.execute(EFFECT, {"n": event.payload["n"]})
        begun.set()
        await anyio.sleep_forever()

    producer.add(1)

    async with consuming(outbox, grace_period=timedelta(milliseconds=50)) as running:
        await begun.wait()
        await running.stop()

    assert database.effects("billing") == []
    assert database.listener("billing").last_processed_id == 0
    assert len(running.recorder.of(LeaseReleased)) == 1


async def test_cancelling_run_releases_the_lease(
    outbox: Outbox, producer: Producer, database: Database, async_engine: AsyncEngine
) -> None:
    listen(outbox)
    producer.add(1)
    consumer, recorder = make_consumer(outbox, async_engine)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(consumer.run)
        await recorder.seen(CaughtUp, position=1)
        tasks.cancel_scope.cancel()

    assert database.listener("billing").locked_by is None


async def test_a_lease_that_is_claimed_while_the_consumer_stops_is_given_back(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    listen(outbox)

    def stop_at_once(observation: Observation) -> None:
        if isinstance(observation, LeaseClaimed):
            second.consumer.stop()

    async with consuming(outbox) as first, consuming(outbox) as second:
        database.rows("UPDATE outbox_listeners SET fingerprint = 'another'")
        second.consumer.observers.add(stop_at_once)
        await first.stop()
        await second.stopped.wait()

    assert database.listener("billing").locked_by is None


class TestAfterACrash:
    async def test_an_expired_lease_is_taken_over(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        got = listen(outbox)
        async with consuming(outbox):
            pass
        producer.add(1)
        database.rows(DIED)

        async with consuming(outbox) as running:
            [claimed] = await running.recorder.seen(LeaseClaimed)
            await running.done("billing")

        assert (claimed.token, claimed.after_crash) == (3, True)
        assert got == [1]

    async def test_a_lease_that_expires_while_somebody_waits_is_taken_over_then(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        got = listen(outbox)
        async with consuming(outbox):
            pass
        producer.add(1)
        database.rows(TAKEN)
        database.rows(
            "UPDATE outbox_listeners"
            " SET lease_expires_at = clock_timestamp() + interval '300 ms'"
        )

        async with consuming(outbox) as running:
            assert running.recorder.of(LeaseClaimed) == []
            await running.recorder.seen(LeaseClaimed, within=3)
            await running.done("billing")

        assert got == [1]

    async def test_after_two_crashes_events_go_one_by_one_and_alone(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        inside = most = 0

        @outbox.listener("billing", on="order.*", concurrency=4)
        async def charge(event: Event[Any], session: AsyncSession) -> None:
            nonlocal inside, most
            inside += 1
            most = max(most, inside)
            await session.execute(EFFECT, {"n": event.payload["n"]})
            inside -= 1

        async with consuming(outbox):
            pass
        producer.add(*range(10))
        database.rows(DIED)
        database.rows("UPDATE outbox_listeners SET crashes = 1")

        async with consuming(outbox) as running:
            await running.done("billing", 10)

        assert most == 1
        assert [each.position for each in running.recorder.of(WentCareful)] == list(range(1, 11))
        assert database.effects("billing") == list(range(10))

    async def test_crashes_are_forgotten_when_everything_is_settled(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        listen(outbox)
        async with consuming(outbox):
            pass
        producer.add(*range(3))
        database.rows(DIED)
        database.rows("UPDATE outbox_listeners SET crashes = 2")

        async with consuming(outbox) as running:
            await running.done("billing", 3)
            await running.consumer.drain()

        assert database.listener("billing").crashes == 0

    async def test_an_event_that_was_alone_at_every_crash_becomes_a_dead_letter(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        got = listen(outbox)
        async with consuming(outbox):
            pass
        producer.add(1, 2)
        database.rows(DIED)
        database.rows(
            "UPDATE outbox_listeners SET crashes = 4, suspect_position = 1, suspect_count = 3"
        )

        async with consuming(outbox, max_crashes=3) as running:
            await running.dead("billing")
            await running.done("billing")

        [dead] = database.dead_letters("billing")
        assert (dead.position, dead.reason, dead.crashes) == (1, "crashes", 3)
        assert got == [2]


class TestALeaseThatIsLost:
    async def test_nothing_more_is_written_and_the_effect_is_rolled_back(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        begun, hurry = anyio.Event(), anyio.Event()

        @outbox.listener("billing", on="order.*")
        async def charge(event: Event[Any], session: AsyncSession) -> None:
            await session.execute(EFFECT, {"n": event.payload["n"]})
            begun.set()
            await hurry.wait()

        producer.add(1)

        async with consuming(outbox) as running:
            await begun.wait()
            database.rows(TAKEN)
            hurry.set()
            [dropped] = await running.recorder.seen(LeaseDropped)

        assert (dropped.listener, dropped.token) == ("billing", 1)
        assert database.effects("billing") == []
        row = database.listener("billing")
        assert (row.last_processed_id, row.locked_by) == (0, "somebody else")

    async def test_a_failure_is_not_written_either(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        begun, hurry = anyio.Event(), anyio.Event()

        @outbox.listener("billing", on="order.*")
        async def charge(event: Event[Any]) -> None:
            begun.set()
            await hurry.wait()
            raise ValueError("too late")

        producer.add(1, key="a")

        async with consuming(outbox) as running:
            await begun.wait()
            database.rows(TAKEN)
            hurry.set()
            await running.recorder.seen(LeaseDropped)

        assert database.deliveries("billing") == []
        assert database.listener("billing").last_processed_id == 0

    async def test_the_handler_that_runs_is_cancelled_by_the_next_renewal(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        begun = anyio.Event()
        cancelled = False

        @outbox.listener("billing", on="order.*")
        async def charge(event: Event[Any], session: AsyncSession) -> None:
            nonlocal cancelled
            await session.execute(EFFECT, {"n": event.payload["n"]})
            begun.set()
            try:
                await anyio.sleep_forever()
            except BaseException:
                cancelled = True
                raise

        producer.add(1)

        async with consuming(outbox, lease_duration=timedelta(milliseconds=600)) as running:
            await begun.wait()
            database.rows(TAKEN)
            await running.recorder.seen(LeaseDropped, within=3)

        assert cancelled
        assert database.effects("billing") == []

    async def test_it_is_claimed_again_when_it_is_free(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        got = listen(outbox)

        async with consuming(
            outbox,
            lease_duration=timedelta(milliseconds=600),
            poll_interval=timedelta(milliseconds=100),
        ) as running:
            database.rows(TAKEN)
            await running.recorder.seen(LeaseDropped)
            database.rows("UPDATE outbox_listeners SET locked_by = NULL, lease_expires_at = NULL")
            await running.recorder.seen(LeaseClaimed, times=2)
            producer.add(1)
            await running.done("billing")

        assert got == [1]


class TestOperators:
    async def test_a_paused_listener_stops_at_the_next_renewal_and_goes_on_when_it_is_not(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        got = listen(outbox)

        async with consuming(
            outbox,
            lease_duration=timedelta(milliseconds=600),
            poll_interval=timedelta(milliseconds=100),
        ) as running:
            producer.add(1)
            await running.done("billing")
            database.rows("UPDATE outbox_listeners SET paused_at = clock_timestamp()")
            await running.recorder.seen(LeaseReleased, within=3)
            producer.add(2)
            assert got == [1]
            database.rows("UPDATE outbox_listeners SET paused_at = NULL")
            await running.done("billing", 2)

        assert got == [1, 2]

    async def test_a_paused_listener_is_not_claimed(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        listen(outbox)
        async with consuming(outbox):
            pass
        database.rows("UPDATE outbox_listeners SET paused_at = clock_timestamp()")

        async with consuming(outbox) as running:
            assert running.recorder.of(LeaseClaimed) == []

    async def test_drain_does_not_wait_for_a_paused_listener(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        listen(outbox)
        async with consuming(outbox):
            pass
        database.rows("UPDATE outbox_listeners SET paused_at = clock_timestamp()")
        producer.add(1)

        async with consuming(outbox) as running:
            with anyio.fail_after(3):
                await running.consumer.drain()

    async def test_a_listener_nobody_declares_any_more_is_told_of(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        listen(outbox)
        producer.add(1, 2, 3)
        database.rows("INSERT INTO outbox_listeners (name, last_processed_id) VALUES ('old', 2)")

        async with consuming(outbox) as running:
            assert running.recorder.of(ListenerOrphaned) == [ListenerOrphaned("old", 2)]

    async def test_a_listener_of_another_consumer_of_the_program_is_no_orphan(
        self, outbox: Outbox, producer: Producer, consuming: Consuming
    ) -> None:
        listen(outbox)

        @outbox.listener("mail", on="order.*")
        async def write(event: Event[Any]) -> None: ...

        async with consuming(outbox):
            pass
        async with consuming(outbox, listeners=["mail"]) as running:
            assert running.recorder.of(ListenerOrphaned) == []

    async def test_a_listener_that_is_declared_otherwise_is_told_of_once(
        self, outbox: Outbox, producer: Producer, consuming: Consuming, notify: Any
    ) -> None:
        listen(outbox)
        async with consuming(outbox) as running:
            assert running.recorder.of(ListenerChanged) == []

        changed = Outbox(notify=notify)

        @changed.listener("billing", on="order.*", order="total")
        async def charge(event: Event[Any]) -> None: ...

        async with consuming(changed) as first:
            pass
        async with consuming(changed) as second:
            pass

        assert first.recorder.of(ListenerChanged) == [ListenerChanged("billing")]
        assert second.recorder.of(ListenerChanged) == []
