"""order="none": any number of processes share the events of a queue out among themselves."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import Session

from sa_outbox import Event, Outbox, Rate, Reject, RetryPolicy
from sa_outbox.consumer.loop.loop import DeliveryLoop
from sa_outbox.consumer.queue.claim import RangeClaimer
from sa_outbox.logs import Log
from sa_outbox.observe import AttemptFailed, HorizonRead, LeaseDropped, RangeTaken
from tests.support import PATIENCE, comes_true

from .conftest import QUICK, Consuming, Database, Producer, make_consumer

pytestmark = pytest.mark.anyio

SHORT = {"lease_duration": timedelta(seconds=1)}


def ranges(database: Database) -> list[Any]:
    return database.rows("SELECT * FROM outbox_ranges ORDER BY number")


def queue(outbox: Outbox, **options: Any) -> list[int]:
    """A queue whose handler notes what it got."""
    got: list[int] = []

    @outbox.listener("mailer", on="order.*", order="none", **{"concurrency": 4, **options})
    async def mail(event: Event[Any]) -> None:
        got.append(event.payload["n"])

    return got


def queue_with_effects(outbox: Outbox, **options: Any) -> None:
    @outbox.listener("mailer", on="order.*", order="none", **{"concurrency": 4, **options})
    async def mail(event: Event[Any], session: AsyncSession) -> None:
        await session.execute(
            text("INSERT INTO effects (listener, n) VALUES ('mailer', :n)"),
            {"n": event.payload["n"]},
        )


class _Lines:
    """A logger that keeps the texts."""

    def __init__(self, lines: list[str]) -> None:
        self.debug = self.info = self.warning = self.error = lambda text, **_: lines.append(text)


class TestSharing:
    async def test_each_event_is_handled_once_and_nothing_is_left_behind(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        got = queue(outbox)
        for n in range(50):
            producer.add(n)

        async with consuming(outbox) as running:
            await running.consumer.drain()
            for n in range(50, 60):
                producer.add(n)
            await running.done("mailer", 60)

        assert sorted(got) == list(range(60))
        assert (ranges(database), database.deliveries("mailer")) == ([], [])
        assert database.listener("mailer").locked_by is None

    async def test_its_ranges_are_no_lines_of_a_log_at_info(
        self, outbox: Outbox, producer: Producer, consuming: Consuming
    ) -> None:
        """A busy queue takes many in a second, also of what it is offered while it is idle."""
        queue(outbox, batch_size=2)
        lines: list[str] = []

        async with consuming(outbox) as running:
            await running.consumer.drain()
            running.consumer.observers.add(Log(_Lines(lines)))
            producer.add(*range(10))
            await running.done("mailer", 10)

        assert all(each.events <= 2 for each in running.recorder.of(RangeTaken))
        assert set(lines) <= {"listening", "stopping", "stopped"}

    async def test_two_consumers_share_them(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        queue_with_effects(outbox)
        for n in range(100):
            producer.add(n)

        async with consuming(outbox) as one, consuming(outbox) as other:
            await one.consumer.drain()
            await other.consumer.drain()

        assert database.effects("mailer") == list(range(100))
        assert ranges(database) == []

    async def test_a_slow_one_keeps_no_other_waiting(
        self, outbox: Outbox, producer: Producer, consuming: Consuming
    ) -> None:
        got: list[int] = []
        go_on = anyio.Event()

        @outbox.listener("mailer", on="order.*", order="none", concurrency=2)
        async def mail(event: Event[Any]) -> None:
            if event.payload["n"] == 0:
                await go_on.wait()
            got.append(event.payload["n"])

        for n in range(40):
            producer.add(n)

        async with consuming(outbox) as running:
            await comes_true(lambda: len(got) == 39)
            go_on.set()
            await running.consumer.drain()

        assert got[-1] == 0

    @pytest.mark.parametrize("with_session", [False, True])
    async def test_no_more_handlers_run_at_once_than_were_asked_for(
        self, outbox: Outbox, producer: Producer, consuming: Consuming, with_session: bool
    ) -> None:
        running_now, most = 0, 0

        async def work() -> None:
            nonlocal running_now, most
            running_now += 1
            most = max(most, running_now)
            for _ in range(20):
                await anyio.lowlevel.checkpoint()
            running_now -= 1

        async def mail(event: Event[Any]) -> None:
            await work()

        async def mail_in_session(event: Event[Any], session: AsyncSession) -> None:
            await work()

        handler: Any = mail_in_session if with_session else mail
        # In groups, two tasks may be done with all of it before the third one is connected.
        options: dict[str, Any] = {"order": "none", "concurrency": 3, "group_commit": False}
        outbox.listener("mailer", on="order.*", **options)(handler)
        for n in range(60):
            producer.add(n)

        async with consuming(outbox) as running:
            await running.consumer.drain()

        assert most == 3

    async def test_events_of_other_types_are_passed_by(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        got = queue(outbox)
        for n in range(20):
            producer.add(n, event_type="other.thing" if n % 3 else "order.placed")

        async with consuming(outbox) as running:
            await running.consumer.drain()

        assert sorted(got) == list(range(0, 20, 3))

    async def test_an_event_whose_transaction_stays_open_comes_when_it_commits(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        got = queue(outbox)
        async with consuming(outbox) as running:
            with producer.open() as session:
                session.add_event("order.placed", {"n": 1})
                session.flush()
                producer.add(2)
                await running.done("mailer")
                assert got == [2]
            await running.done("mailer", 2)
        assert got == [2, 1]

    async def test_other_types_above_an_open_transaction_are_read_once_and_not_for_ever(
        self,
        outbox: Outbox,
        producer: Producer,
        consuming: Consuming,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        asked = 0
        state = RangeClaimer._look

        async def counted(self: RangeClaimer, held: list[int]) -> Any:
            nonlocal asked
            asked += 1
            return await state(self, held)

        monkeypatch.setattr(RangeClaimer, "_look", counted)
        got = queue(outbox, concurrency=1)
        with producer.open() as session:
            producer.add(*range(20), event_type="other.thing")
            session.add_event("order.placed", {"n": 1})
            session.flush()
            producer.add(*range(20), event_type="other.thing")
            async with consuming(outbox) as running:
                await running.consumer.drain()
                asked_at_rest = asked
                await running.consumer.drain()
        assert got == []
        assert asked - asked_at_rest < 20

    async def test_a_queue_whose_row_was_deleted_waits_and_does_not_end_the_process(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        got = queue(outbox)
        async with consuming(outbox) as running:
            await running.listening()
            database.rows("DELETE FROM outbox_listeners")
            producer.add(1)
            await running.recorder.seen(HorizonRead, ceiling=1)
            database.rows("INSERT INTO outbox_listeners (name) VALUES ('mailer')")
            producer.add(2)
            await running.done("mailer", 2)
        assert sorted(got) == [1, 2]

    async def test_a_range_that_somebody_has_locked_is_asked_for_now_and_then(
        self,
        outbox: Outbox,
        producer: Producer,
        database: Database,
        consuming: Consuming,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """As one of a process that was stopped in the middle of a transaction."""
        times: list[float] = []
        abandoned = RangeClaimer._abandoned

        async def noted(self: RangeClaimer, held: list[int]) -> Any:
            times.append(anyio.current_time())
            return await abandoned(self, held)

        monkeypatch.setattr(RangeClaimer, "_abandoned", noted)
        queue(outbox)
        producer.add(1)
        async with consuming(outbox) as running:
            await running.consumer.drain()
            database.rows(
                "INSERT INTO outbox_ranges (listener, last_processed_id, gaps)"
                " VALUES ('mailer', 1, '[[1, 1]]')"
            )
            with database.engine.begin() as connection:
                connection.execute(text("SELECT FROM outbox_ranges FOR UPDATE"))
                producer.add(2)
                await comes_true(lambda: len(times) >= 15)
            await running.consumer.drain()
        assert times[14] - times[0] > 0.3
        assert ranges(database) == []

    async def test_sync_handlers_and_batches_work_too(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        sizes: list[int] = []

        @outbox.listener("mailer", on="order.*", order="none", concurrency=2)
        def mail(event: Event[Any], session: Session) -> None:
            session.execute(
                text("INSERT INTO effects (listener, n) VALUES ('mailer', :n)"),
                {"n": event.payload["n"]},
            )

        @outbox.listener("index", on="order.*", order="none", batch_size=10)
        async def index(events: list[Event[Any]]) -> None:
            sizes.append(len(events))

        for n in range(30):
            producer.add(n)
        async with consuming(outbox) as running:
            await running.consumer.drain()

        assert database.effects("mailer") == list(range(30))
        assert (sum(sizes), max(sizes)) == (30, 10)


class TestFailing:
    async def test_a_failed_one_comes_again_while_others_go_on(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        got: list[int] = []
        failed: set[int] = set()

        @outbox.listener("mailer", on="order.*", order="none", concurrency=4, retry=QUICK)
        async def mail(event: Event[Any]) -> None:
            n = event.payload["n"]
            if n % 5 == 0 and n not in failed:
                failed.add(n)
                raise ValueError("not now")
            got.append(n)

        for n in range(30):
            producer.add(n, key="the same")
        async with consuming(outbox) as running:
            await running.consumer.drain()

        assert sorted(got) == list(range(30))
        assert (ranges(database), database.deliveries("mailer")) == ([], [])
        assert database.listener("mailer").last_error == "not now"

    @pytest.mark.parametrize("with_session", [False, True])
    async def test_one_that_keeps_failing_is_a_dead_letter_with_every_error(
        self,
        outbox: Outbox,
        producer: Producer,
        database: Database,
        consuming: Consuming,
        with_session: bool,
    ) -> None:
        times = 0

        async def fail(event: Event[Any]) -> None:
            nonlocal times
            times += 1
            raise ValueError(f"error {times}")

        async def fail_in_session(event: Event[Any], session: AsyncSession) -> None:
            await fail(event)

        handler: Any = fail_in_session if with_session else fail
        outbox.listener("mailer", on="order.*", order="none", retry=QUICK)(handler)
        producer.add(1)
        async with consuming(outbox) as running:
            await running.dead("mailer")

        [dead] = database.dead_letters("mailer")
        assert (dead.reason, dead.attempts) == ("attempts", 3)
        assert [each["message"] for each in dead.errors] == ["error 1", "error 2", "error 3"]
        assert (ranges(database), database.deliveries("mailer")) == ([], [])

    async def test_a_rejected_one_is_a_dead_letter_at_once(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        @outbox.listener("mailer", on="order.*", order="none")
        async def mail(event: Event[Any]) -> None:
            raise Reject("no such customer")

        producer.add(1)
        async with consuming(outbox) as running:
            await running.dead("mailer")
        [dead] = database.dead_letters("mailer")
        assert (dead.reason, dead.attempts) == ("rejected", 1)


class TestPriority:
    async def test_an_urgent_event_overtakes_those_that_wait(
        self, outbox: Outbox, producer: Producer, consuming: Consuming
    ) -> None:
        got = queue(outbox, concurrency=1, batch_size=10)
        for n in range(200):
            producer.add(n)
        producer.add(1000, priority=5)
        producer.add(2000, priority=9)

        async with consuming(outbox) as running:
            await running.consumer.drain()

        assert sorted(got) == [*range(200), 1000, 2000]
        assert got.index(2000) < got.index(1000) < 50

    async def test_one_of_low_priority_comes_last_but_comes(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        got = queue(outbox, concurrency=1, batch_size=10)
        producer.add(1000, priority=-5)
        for n in range(100):
            producer.add(n)

        async with consuming(outbox) as running:
            await running.consumer.drain()

        assert sorted(got) == [*range(100), 1000]
        # One turn in four goes to what has been due for longest, so not the very last.
        assert 0 < got.index(1000) < 60
        assert database.deliveries("mailer") == []


class TestScheduling:
    async def test_an_event_with_a_time_waits_for_it_in_a_row(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        at: list[float] = []

        @outbox.listener("mailer", on="order.*", order="none")
        async def mail(event: Event[Any]) -> None:
            assert event.run_at is not None
            at.append((datetime.now(UTC) - event.run_at).total_seconds())

        async with consuming(outbox) as running:
            await running.listening()
            producer.add(1, run_at=datetime.now(UTC) + timedelta(seconds=1))
            await comes_true(lambda: len(database.deliveries("mailer")) == 1)
            await running.done("mailer")

        assert at[0] >= 0
        assert database.deliveries("mailer") == []


class TestTenants:
    async def test_a_small_tenant_does_not_wait_for_a_large_one(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        got: list[str | None] = []

        @outbox.listener("mailer", on="order.*", order="none", concurrency=2, batch_size=20)
        async def mail(event: Event[Any]) -> None:
            got.append(event.tenant)

        producer.add(*range(2000), tenant="large")
        producer.add(*range(10), tenant="small")
        async with consuming(outbox) as running:
            await running.consumer.drain()

        assert len(got) == 2010
        last = max(index for index, tenant in enumerate(got) if tenant == "small")
        assert last < 100


class TestLeases:
    async def test_what_a_dead_process_held_is_taken_over_and_nothing_else_is_done_twice(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        queue_with_effects(outbox)
        for n in range(10):
            producer.add(n)
        async with consuming(outbox) as running:
            await running.consumer.drain()
        for n in range(10, 20):
            producer.add(n)
        # As if a process had taken 11 to 20, settled 14 to 16, and died.
        database.rows(
            "INSERT INTO outbox_ranges (listener, last_processed_id, gaps, locked_by,"
            " lease_expires_at) VALUES ('mailer', 20, '[[11,13],[17,20]]', 'somebody',"
            " clock_timestamp() - interval '1 second')"
        )
        database.rows("UPDATE outbox_listeners SET last_processed_id = 20, revision = revision + 1")
        async with consuming(outbox) as running:
            (taken,) = await running.recorder.seen(RangeTaken, after_crash=True)
            assert taken.events == 7, "those that nobody has settled"
            await running.done("mailer", 7)
            await running.consumer.drain()

        assert database.effects("mailer") == [*range(13), *range(16, 20)]
        assert ranges(database) == []

    async def test_one_whose_range_was_taken_over_settles_nothing(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        started, go_on = anyio.Event(), anyio.Event()
        outcomes: list[str] = []

        @outbox.listener("mailer", on="order.*", order="none")
        async def mail(event: Event[Any], session: AsyncSession) -> None:
            await session.execute(
                text("INSERT INTO effects (listener, n) VALUES ('mailer', :n)"),
                {"n": event.payload["n"]},
            )
            started.set()
            if not outcomes:
                outcomes.append("first")
                await go_on.wait()

        producer.add(1)
        async with consuming(outbox) as running:
            await started.wait()
            database.rows("UPDATE outbox_ranges SET lease_token = lease_token + 1")
            go_on.set()
            await running.recorder.seen(LeaseDropped)
            assert database.effects("mailer") == []
            # The one who has it dies; then it is ours again.
            database.rows(
                "UPDATE outbox_ranges SET lease_expires_at = clock_timestamp(), locked_by = 'x'"
            )
            await running.done("mailer")

        assert database.effects("mailer") == [1]

    async def test_a_lease_is_renewed_while_a_handler_runs(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        go_on = anyio.Event()
        times = 0

        @outbox.listener("mailer", on="order.*", order="none")
        async def mail(event: Event[Any]) -> None:
            nonlocal times
            times += 1
            await go_on.wait()

        producer.add(1)
        async with consuming(outbox, **SHORT), consuming(outbox, **SHORT):
            await comes_true(lambda: len(ranges(database)) == 1)
            first = ranges(database)[0].lease_expires_at
            await comes_true(
                lambda: ranges(database)[0].lease_expires_at > first + timedelta(seconds=2),
                within=30,
            )
            go_on.set()
            await comes_true(lambda: ranges(database) == [])
        assert times == 1

    async def test_a_stop_leaves_the_rest_to_others_at_once(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        got: list[int] = []
        first, go_on = anyio.Event(), anyio.Event()

        @outbox.listener("mailer", on="order.*", order="none", concurrency=1)
        async def mail(event: Event[Any]) -> None:
            first.set()
            await go_on.wait()
            got.append(event.payload["n"])

        for n in range(4):
            producer.add(n)
        async with consuming(outbox) as running:
            await first.wait()
            running.consumer.stop()
            go_on.set()
            await running.stopped.wait()
            [left] = ranges(database)
            assert (left.locked_by, left.crashes, len(got)) == (None, 0, 1)
            async with consuming(outbox) as other:
                await other.consumer.drain()

        assert sorted(got) == list(range(4))

    async def test_a_paused_queue_is_left_alone(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        got = queue(outbox)
        async with consuming(outbox) as running:
            await running.listening()
        database.rows("UPDATE outbox_listeners SET paused_at = now()")
        producer.add(1)
        async with consuming(outbox) as running:
            await running.listening()
            assert (got, ranges(database)) == ([], [])
            database.rows("UPDATE outbox_listeners SET paused_at = NULL")
            database.rows("SELECT pg_notify('outbox', 'released')")
            producer.add(2)  # without NOTIFY, a look wakes the queue as well
            await running.done("mailer", 2)


class TestCrashes:
    async def test_an_event_that_ends_the_process_is_a_dead_letter_in_the_end(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        got: list[int] = []

        @outbox.listener("mailer", on="order.*", order="none", concurrency=1)
        async def mail(event: Event[Any]) -> None:
            if event.payload["n"] == 2:
                raise SystemExit(3)
            got.append(event.payload["n"])

        for n in range(5):
            producer.add(n)
        for _ in range(10):
            async with consuming(outbox) as running:
                with anyio.move_on_after(PATIENCE):
                    await comes_true(lambda: running.stopped.is_set() or len(got) >= 4)
            if database.dead_letters("mailer"):
                break

        async with consuming(outbox) as running:
            await running.consumer.drain()
        [dead] = database.dead_letters("mailer")
        assert (dead.position, dead.reason) == (3, "crashes")
        assert set(got) == {0, 1, 3, 4}


async def test_it_goes_on_after_the_server_ended_its_connections(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    queue_with_effects(outbox, retry=RetryPolicy(attempts=2))
    for n in range(30):
        producer.add(n)
    async with consuming(outbox) as running:
        await running.done("mailer", 5)
        database.end_consumer_backends()
        for n in range(30, 40):
            producer.add(n)
        await running.consumer.drain()
    assert database.effects("mailer") == list(range(40))
    assert running.recorder.of(AttemptFailed) == []


class TestLimits:
    async def test_a_tenant_has_its_share_of_the_handlers_and_no_more(
        self, outbox: Outbox, producer: Producer, consuming: Consuming
    ) -> None:
        now: dict[str | None, int] = {}
        most: dict[str | None, int] = {}

        @outbox.listener("mailer", on="order.*", order="none", concurrency=8, tenant_concurrency=2)
        async def mail(event: Event[Any]) -> None:
            tenant = event.tenant
            now[tenant] = now.get(tenant, 0) + 1
            most[tenant] = max(most.get(tenant, 0), now[tenant])
            for _ in range(20):
                await anyio.lowlevel.checkpoint()
            now[tenant] -= 1

        for tenant in ("a", "b", "c"):
            producer.add(*range(40), tenant=tenant)
        async with consuming(outbox) as running:
            await running.consumer.drain()

        assert most == {"a": 2, "b": 2, "c": 2}

    async def test_a_rate_spreads_the_events(
        self, outbox: Outbox, producer: Producer, consuming: Consuming
    ) -> None:
        times: list[float] = []

        @outbox.listener("mailer", on="order.*", order="none", concurrency=8, rate=Rate(20))
        async def mail(event: Event[Any]) -> None:
            times.append(anyio.current_time())

        producer.add(*range(30))
        async with consuming(outbox) as running:
            await running.consumer.drain()

        assert len(times) == 30
        assert all(sum(one <= each < one + 0.99 for each in times) <= 20 for one in times)

    @pytest.mark.parametrize("limit", [None, 2], ids=["all", "limited"])
    async def test_while_every_handler_is_busy_what_waits_costs_nothing(
        self,
        limit: int | None,
        outbox: Outbox,
        producer: Producer,
        async_engine: AsyncEngine,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """A loop whose next time has passed would turn around and around."""
        turns, pause = 0, DeliveryLoop._pause

        def counted(loop: DeliveryLoop[Any], *, has_caught_up: bool) -> float | None:
            nonlocal turns
            turns += 1
            return pause(loop, has_caught_up=has_caught_up)

        monkeypatch.setattr(DeliveryLoop, "_pause", counted)

        @outbox.listener("mailer", on="order.*", order="none", concurrency=2, rate=Rate(1000))
        async def mail(event: Event[Any]) -> None:
            for _ in range(300):
                await anyio.lowlevel.checkpoint()

        producer.add(*range(6))
        drained = await make_consumer(outbox, async_engine)[0].drain(limit=limit)

        assert drained.handled == (limit or 6)
        assert turns < 50
