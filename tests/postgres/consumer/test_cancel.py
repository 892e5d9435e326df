"""outbox.cancel: what was not started never starts, what runs is asked to give up."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import anyio
import pytest
from sqlalchemy import Engine, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import Session

from sa_outbox import Event, Outbox
from sa_outbox.client.cancellation import Answer
from sa_outbox.consumer.queue.range_source import RangeSource
from sa_outbox.errors import (
    ConfigError,
    EventNotFound,
    InvalidEvent,
    NotAtomic,
    WrongArgument,
)
from sa_outbox.observe import AttemptFailed, DeliverySettled
from tests.support import comes_true

from .conftest import LATER, ONCE, QUICK, Consuming, Database, Producer

pytestmark = [pytest.mark.anyio, pytest.mark.woken_by("poll")]

HOUR = timedelta(hours=1)
SHORT = {"lease_duration": timedelta(seconds=1)}


def add(producer: Producer, *numbers: int, **options: Any) -> list[UUID]:
    """The ids of the events, in the order of the numbers."""
    with producer.open() as session:
        return [session.add_event("order.placed", {"n": n}, **options).event_id for n in numbers]


def cancel(outbox: Outbox, engine: Engine, event_id: UUID, **options: Any) -> dict[str, Answer]:
    with engine.begin() as connection:
        return outbox.cancel(connection, event_id, **options)


def note(outbox: Outbox, name: str = "mailer", **options: Any) -> list[int]:
    """A listener that notes what it got; a queue, unless said otherwise."""
    got: list[int] = []

    @outbox.listener(name, on="order.*", **{"order": "none", "concurrency": 4, **options})
    async def listen(event: Event[Any]) -> None:
        got.append(event.payload["n"])

    return got


class TestNotStarted:
    async def test_one_that_was_not_taken_never_starts(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        got = note(outbox)
        async with consuming(outbox) as running:
            await running.consumer.drain()
        ids = add(producer, 1, 2, 3)

        assert cancel(outbox, database.engine, ids[1], reason="why") == {"mailer": "cancelled"}

        async with consuming(outbox) as running:
            await running.consumer.drain()
        assert sorted(got) == [1, 3]
        (row,) = database.deliveries("mailer")
        assert (row.event_id, row.state, row.cancel_reason) == (ids[1], "cancelled", "why")
        assert row.range is None

    async def test_in_the_callers_transaction_which_may_be_rolled_back(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        got = note(outbox)
        async with consuming(outbox) as running:
            await running.consumer.drain()
        (event_id,) = add(producer, 1)

        with database.engine.connect() as connection:
            assert outbox.cancel(connection, event_id) == {"mailer": "cancelled"}
            connection.rollback()

        async with consuming(outbox) as running:
            await running.consumer.drain()
        assert got == [1]
        assert database.deliveries("mailer") == []

    async def test_also_in_the_transaction_that_adds_it(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        got = note(outbox)
        async with consuming(outbox) as running:
            await running.consumer.drain()
            with producer.open() as session:
                first = session.add_event("order.placed", {"n": 1})
                session.add_event("order.placed", {"n": 2})
                session.flush()
                assert outbox.cancel(session, first.event_id) == {"mailer": "cancelled"}
            await running.done("mailer")
            await running.consumer.drain()

        assert got == [2]

    async def test_earlier_events_that_are_committed_later_are_not_passed_by(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        """Cancelled far ahead of the cursor, what lies between stays to be taken."""
        got = note(outbox)
        async with consuming(outbox) as running:
            await running.consumer.drain()
            with producer.open() as session:
                session.add_event("order.placed", {"n": 1})
                session.flush()
                event_id, _ = add(producer, 2, 3, run_at=datetime.now(UTC) + HOUR)
                assert cancel(outbox, database.engine, event_id) == {"mailer": "cancelled"}
                add(producer, 4)
                await running.done("mailer")
            await running.done("mailer", 2)

        assert got == [4, 1]
        states = [(row.position, row.state) for row in database.deliveries("mailer")]
        assert states == [(2, "cancelled"), (3, "scheduled")]

    @pytest.mark.parametrize("order", ["none", "key", "total"])
    async def test_a_scheduled_one_never_starts_whatever_the_order(
        self,
        outbox: Outbox,
        producer: Producer,
        database: Database,
        consuming: Consuming,
        order: Any,
    ) -> None:
        got = note(outbox, order=order, concurrency=1)
        event_id, _ = add(producer, 1, 2, run_at=datetime.now(UTC) + HOUR)
        async with consuming(outbox) as running:
            await comes_true(lambda: len(database.deliveries("mailer")) == 2)

            assert cancel(outbox, database.engine, event_id) == {"mailer": "cancelled"}
            assert cancel(outbox, database.engine, event_id) == {"mailer": "cancelled"}

        database.rows("UPDATE outbox_deliveries SET due_at = clock_timestamp()")
        async with consuming(outbox) as running:
            await running.done("mailer")
            await running.consumer.drain()
        assert got == [2]
        assert [row.state for row in database.deliveries("mailer")] == ["cancelled"]

    async def test_one_that_waits_for_its_next_attempt_gets_none(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        @outbox.listener("mailer", on="order.*", order="none", retry=LATER)
        async def mail(event: Event[Any]) -> None:
            raise ValueError("no")

        (event_id,) = add(producer, 1)
        async with consuming(outbox) as running:
            await running.settled("mailer", outcome="retry")
            assert cancel(outbox, database.engine, event_id) == {"mailer": "cancelled"}
            await running.consumer.drain()

        (row,) = database.deliveries("mailer")
        assert (row.state, row.attempts, row.last_error) == ("cancelled", 1, "no")

    async def test_a_scheduled_one_is_not_begun_while_its_cancellation_is_open(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        """Of a listener with an order: it is due before the caller commits."""
        got = note(outbox, order="key")
        event_id, _ = add(producer, 1, 2, run_at=datetime.now(UTC) + HOUR)
        async with consuming(outbox, lease_duration=timedelta(seconds=3)) as running:
            await comes_true(lambda: len(database.deliveries("mailer")) == 2)
            database.rows(
                "UPDATE outbox_deliveries SET due_at = clock_timestamp() + interval '2 seconds'"
            )
            with database.engine.begin() as connection:
                answer = outbox.cancel(connection, event_id)
                await running.done("mailer")  # the other one, which is due at the same time
            await running.consumer.drain()

        assert answer == {"mailer": "cancelled"}
        assert got == [2]

    async def test_each_queue_that_wants_it_or_the_one_that_is_named(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        mailed, exported = note(outbox), note(outbox, "exports")
        note(outbox, "billing", order="key")

        @outbox.listener("other", on="invoice.*", order="none")
        async def other(event: Event[Any]) -> None: ...

        async with consuming(outbox) as running:
            await running.consumer.drain()
        one, both = add(producer, 1, 2)

        assert cancel(outbox, database.engine, one, listener="exports") == {"exports": "cancelled"}
        assert cancel(outbox, database.engine, both) == {
            "billing": "ordered",
            "exports": "cancelled",
            "mailer": "cancelled",
        }

        async with consuming(outbox) as running:
            await running.consumer.drain()
        assert (mailed, exported) == ([1], [])


@pytest.mark.woken_by("notify", "poll")
class TestRunning:
    async def test_a_handler_that_allows_it_is_cancelled(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        begun, ended = anyio.Event(), anyio.Event()

        @outbox.listener("mailer", on="order.*", order="none", cancellable=True)
        async def mail(event: Event[Any]) -> None:
            begun.set()
            try:
                await anyio.sleep_forever()
            finally:
                assert event.cancel_requested
                ended.set()

        (event_id,) = add(producer, 1)
        async with consuming(outbox) as running:
            await begun.wait()
            answer = cancel(outbox, database.engine, event_id, reason="why")
            assert answer == {"mailer": "requested"}
            await ended.wait()
            await running.settled("mailer", outcome="cancelled")
            assert running.recorder.of(AttemptFailed) == []
            assert cancel(outbox, database.engine, event_id) == {"mailer": "cancelled"}

        (row,) = database.deliveries("mailer")
        assert (row.state, row.range, row.attempts) == ("cancelled", None, 1)
        assert row.cancel_reason == "why"
        assert database.rows("SELECT * FROM outbox_ranges") == []

    async def test_its_session_is_rolled_back(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        begun = anyio.Event()

        @outbox.listener("mailer", on="order.*", order="none", cancellable=True)
        async def mail(event: Event[Any], session: AsyncSession) -> None:
            await session.execute(
                text("INSERT INTO effects VALUES ('mailer', :n)"), {"n": event.payload["n"]}
            )
            if event.payload["n"] == 1:
                begun.set()
                await anyio.sleep_forever()

        event_id, _ = add(producer, 1, 2)
        async with consuming(outbox) as running:
            await begun.wait()
            cancel(outbox, database.engine, event_id)
            await running.settled("mailer", outcome="cancelled")
            await running.consumer.drain()

        assert database.effects("mailer") == [2]
        assert [row.state for row in database.deliveries("mailer")] == ["cancelled"]

    @pytest.mark.parametrize("is_async", [True, False])
    async def test_another_can_ask_and_give_up_or_go_on(
        self,
        outbox: Outbox,
        producer: Producer,
        database: Database,
        consuming: Consuming,
        is_async: bool,
    ) -> None:
        """Done all the same, its row is gone."""
        seen: list[Event[Any]] = []
        go_on = anyio.Event()

        async def mail(event: Event[Any]) -> None:
            seen.append(event)
            await go_on.wait()

        def mail_in_thread(event: Event[Any]) -> None:
            seen.append(event)
            anyio.from_thread.run(go_on.wait)

        handler: Any = mail if is_async else mail_in_thread
        outbox.listener("mailer", on="order.*", order="none")(handler)
        (event_id,) = add(producer, 1)
        async with consuming(outbox) as running:
            await comes_true(lambda: len(seen) == 1)
            assert not seen[0].cancel_requested
            assert cancel(outbox, database.engine, event_id) == {"mailer": "requested"}
            await comes_true(lambda: seen[0].cancel_requested)
            go_on.set()
            await running.done("mailer")
            assert cancel(outbox, database.engine, event_id) == {"mailer": "done"}

        assert len(seen) == 1
        assert database.deliveries("mailer") == []

    async def test_one_that_fails_after_the_request_is_not_attempted_again(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        attempts = 0
        begun, go_on = anyio.Event(), anyio.Event()

        @outbox.listener("mailer", on="order.*", order="none", retry=QUICK)
        async def mail(event: Event[Any]) -> None:
            nonlocal attempts
            attempts += 1
            begun.set()
            await go_on.wait()
            raise ValueError("no")

        (event_id,) = add(producer, 1)
        async with consuming(outbox) as running:
            await begun.wait()
            assert cancel(outbox, database.engine, event_id) == {"mailer": "requested"}
            # At once, so that perhaps nobody has told the consumer: the row itself decides.
            go_on.set()
            await running.consumer.drain()

        assert attempts == 1
        (row,) = database.deliveries("mailer")
        assert (row.state, row.range, row.last_error) == ("cancelled", None, "no")

    @pytest.mark.parametrize("concurrency", [1, 2])
    async def test_one_that_waits_for_a_hand_never_starts(
        self,
        outbox: Outbox,
        producer: Producer,
        database: Database,
        consuming: Consuming,
        concurrency: int,
    ) -> None:
        got: list[int] = []
        go_on = anyio.Event()

        @outbox.listener("mailer", on="order.*", order="none", concurrency=concurrency)
        async def mail(event: Event[Any]) -> None:
            got.append(event.payload["n"])
            await go_on.wait()

        ids = add(producer, *range(4))
        async with consuming(outbox) as running:
            await comes_true(lambda: len(got) == concurrency)
            assert cancel(outbox, database.engine, ids[-1]) == {"mailer": "requested"}
            await running.settled("mailer", outcome="cancelled")
            go_on.set()
            await running.consumer.drain()

        assert sorted(got) == [0, 1, 2]
        assert [row.state for row in database.deliveries("mailer")] == ["cancelled"]
        assert database.rows("SELECT * FROM outbox_ranges") == []

    async def test_whoever_takes_a_range_over_does_not_start_it(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        got = note(outbox)
        ids = add(producer, 1, 2)
        async with consuming(outbox) as running:
            await running.consumer.drain()
        # As a process leaves it that died before it had begun.
        database.rows("UPDATE outbox_listeners SET last_processed_id = 2")
        database.rows(
            "INSERT INTO outbox_ranges (listener, last_processed_id, gaps)"
            " VALUES ('mailer', 2, '[[1,2]]')"
        )
        got.clear()

        assert cancel(outbox, database.engine, ids[0]) == {"mailer": "requested"}

        async with consuming(outbox) as running:
            await running.settled("mailer", outcome="cancelled")
            await running.consumer.drain()
        assert got == [2]
        assert [row.state for row in database.deliveries("mailer")] == ["cancelled"]
        assert database.rows("SELECT * FROM outbox_ranges") == []

    async def test_a_request_that_came_too_late_is_forgotten(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        """Made while the event is being settled, by a transaction that commits after that."""
        go_on = anyio.Event()
        begun = anyio.Event()

        @outbox.listener("mailer", on="order.*", order="none")
        async def mail(event: Event[Any]) -> None:
            begun.set()
            await go_on.wait()

        (event_id,) = add(producer, 1)
        async with consuming(outbox, **SHORT) as running:
            await begun.wait()
            with database.engine.begin() as connection:
                assert outbox.cancel(connection, event_id) == {"mailer": "requested"}
                go_on.set()
                await running.done("mailer")
            assert [row.state for row in database.deliveries("mailer")] == ["scheduled"]
            await comes_true(lambda: database.deliveries("mailer") == [])
            await running.consumer.drain()

    async def test_one_that_came_when_nobody_was_left_is_forgotten_by_the_next_process(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        """Left where it is, its event would never be pruned."""
        go_on, begun = anyio.Event(), anyio.Event()

        @outbox.listener("mailer", on="order.*", order="none")
        async def mail(event: Event[Any]) -> None:
            begun.set()
            await go_on.wait()

        (event_id,) = add(producer, 1)
        with database.engine.begin() as connection:
            async with consuming(outbox) as running:
                await begun.wait()
                assert outbox.cancel(connection, event_id) == {"mailer": "requested"}
                go_on.set()
                await running.done("mailer")
        assert [row.state for row in database.deliveries("mailer")] == ["scheduled"]

        async with consuming(outbox) as running:
            await comes_true(lambda: database.deliveries("mailer") == [])
            await running.listening()

        assert begun.is_set()
        assert len(running.recorder.of(DeliverySettled)) == 0

    async def test_one_that_comes_while_a_range_is_taken_over_is_heard(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        """After its events were asked for, before they are there."""
        got = note(outbox)
        ids = add(producer, 1)
        async with consuming(outbox) as running:
            await running.consumer.drain()
        got.clear()
        database.rows(
            "INSERT INTO outbox_ranges (listener, last_processed_id, gaps)"
            " VALUES ('mailer', 1, '[[1,1]]')"
        )
        read_again = RangeSource._read_again
        answers: list[Answer] = []

        async def and_cancel(source: RangeSource) -> list[Any]:
            rows = await read_again(source)
            answers.extend(cancel(outbox, database.engine, ids[0]).values())
            source.withdraw(1)
            return rows

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(RangeSource, "_read_again", and_cancel)
            async with consuming(outbox) as running:
                await running.settled("mailer", outcome="cancelled")

        assert (answers, got) == (["requested"], [])

    async def test_a_batch_is_asked_for_its_event(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        seen: list[Event[Any]] = []
        begun, go_on = anyio.Event(), anyio.Event()

        @outbox.listener("index", on="order.*", order="none", batch_size=3)
        async def index(events: Sequence[Event[Any]]) -> None:
            seen.extend(events)
            begun.set()
            await go_on.wait()

        ids = add(producer, 1, 2, 3)
        async with consuming(outbox) as running:
            await begun.wait()
            assert cancel(outbox, database.engine, ids[1]) == {"index": "requested"}
            await comes_true(lambda: seen[1].cancel_requested)
            go_on.set()
            await running.done("index", 3)

        assert [event.cancel_requested for event in seen] == [False, True, False]
        assert database.deliveries("index") == []


class TestTooLate:
    async def test_what_is_done_or_dead_stays_so(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        @outbox.listener("mailer", on="order.*", order="none", retry=ONCE)
        async def mail(event: Event[Any]) -> None:
            if event.payload["n"] == 2:
                raise ValueError("no")

        done, dead = add(producer, 1, 2)
        async with consuming(outbox) as running:
            await running.consumer.drain()

        assert cancel(outbox, database.engine, done) == {"mailer": "done"}
        assert cancel(outbox, database.engine, dead) == {"mailer": "dead"}
        assert database.deliveries("mailer") == []

    def test_a_listener_that_never_ran_is_unknown(
        self, outbox: Outbox, producer: Producer, database: Database
    ) -> None:
        note(outbox)
        (event_id,) = add(producer, 1)

        assert cancel(outbox, database.engine, event_id) == {"mailer": "unknown"}

    async def test_a_scheduled_one_that_is_due_is_only_asked_for(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        """Of a listener with an order, whose holder may have begun."""
        note(outbox, order="key")
        (event_id,) = add(producer, 1, run_at=datetime.now(UTC) + HOUR)
        async with consuming(outbox) as running:
            await comes_true(lambda: len(database.deliveries("mailer")) == 1)
            await running.stop()
        database.rows("UPDATE outbox_deliveries SET due_at = clock_timestamp()")

        assert cancel(outbox, database.engine, event_id) == {"mailer": "requested"}


class TestMistakes:
    def test_an_unknown_event_is_an_error(self, outbox: Outbox, database: Database) -> None:
        note(outbox)
        with pytest.raises(EventNotFound, match="there is no event"):
            cancel(outbox, database.engine, uuid4())

    def test_so_is_an_unknown_listener(
        self, outbox: Outbox, producer: Producer, database: Database
    ) -> None:
        note(outbox)
        (event_id,) = add(producer, 1)

        with pytest.raises(ConfigError, match="there is no listener 'nobody'"):
            cancel(outbox, database.engine, event_id, listener="nobody")

    def test_and_one_that_does_not_want_it(
        self, outbox: Outbox, producer: Producer, database: Database
    ) -> None:
        @outbox.listener("other", on="invoice.*", order="none")
        async def other(event: Event[Any]) -> None: ...

        (event_id,) = add(producer, 1)
        with pytest.raises(ConfigError, match="does not listen to"):
            cancel(outbox, database.engine, event_id, listener="other")

    def test_autocommit_is_refused(
        self, outbox: Outbox, producer: Producer, database: Database
    ) -> None:
        note(outbox)
        (event_id,) = add(producer, 1)

        autocommit = database.engine.execution_options(isolation_level="AUTOCOMMIT")
        with autocommit.connect() as connection, pytest.raises(NotAtomic):
            outbox.cancel(connection, event_id)

    @pytest.mark.parametrize(
        ("arguments", "options", "error"),
        [
            ((7,), {}, WrongArgument),
            (("no-id",), {}, InvalidEvent),
            ((uuid4(),), {"reason": "x" * 1001}, InvalidEvent),
            ((uuid4(),), {"reason": "a\x00"}, InvalidEvent),
            ((uuid4(),), {"reason": 7}, WrongArgument),
        ],
    )
    def test_wrong_arguments_are_refused(
        self,
        outbox: Outbox,
        database: Database,
        arguments: Any,
        options: Any,
        error: type[Exception],
    ) -> None:
        with database.engine.begin() as connection, pytest.raises(error):
            outbox.cancel(connection, *arguments, **options)

    def test_something_else_than_a_session_is_refused(self, outbox: Outbox) -> None:
        place: Any = "session"
        with pytest.raises(WrongArgument, match="must be the session or connection"):
            outbox.cancel(place, uuid4())

    @pytest.mark.parametrize(
        ("options", "why"),
        [
            ({"order": "key"}, "only a queue"),
            ({"order": "total"}, "only a queue"),
            ({"cancellable": 1}, "True or False"),
        ],
    )
    def test_only_a_queue_is_cancellable(self, outbox: Outbox, options: Any, why: str) -> None:
        with pytest.raises(ConfigError, match=why):
            note(outbox, **{"cancellable": True, "concurrency": 1, **options})

    def test_a_thread_is_not(self, outbox: Outbox) -> None:
        def mail(event: Event[Any]) -> None: ...

        with pytest.raises(ConfigError, match="a thread can't be stopped"):
            outbox.listener("mailer", on="order.*", order="none", cancellable=True)(mail)


class TestPlaces:
    async def test_any_session_or_connection_will_do(
        self,
        outbox: Outbox,
        producer: Producer,
        database: Database,
        consuming: Consuming,
        async_engine: AsyncEngine,
    ) -> None:
        got = note(outbox)
        async with consuming(outbox) as running:
            await running.consumer.drain()
        ids = add(producer, 1, 2, 3, 4)

        with Session(database.engine) as session, session.begin():
            assert outbox.cancel(session, str(ids[0])) == {"mailer": "cancelled"}
        async with AsyncSession(async_engine) as other, other.begin():
            assert await outbox.cancel(other, ids[1]) == {"mailer": "cancelled"}
        async with async_engine.begin() as connection:
            assert await outbox.cancel(connection, ids[2]) == {"mailer": "cancelled"}

        async with consuming(outbox) as running:
            await running.consumer.drain()
        assert got == [4]


@pytest.mark.woken_by("notify", "poll")
class TestRaces:
    @pytest.mark.parametrize("with_session", [False, True])
    async def test_what_was_said_to_be_cancelled_was_never_started(
        self,
        outbox: Outbox,
        producer: Producer,
        database: Database,
        consuming: Consuming,
        async_engine: AsyncEngine,
        with_session: bool,
    ) -> None:
        """Two consumers, events with a time and without, and cancellations in between."""
        chance = random.Random(with_session)
        started: list[int] = []
        answers: dict[int, Answer] = {}
        numbers = range(240)

        async def mail(event: Event[Any]) -> None:
            started.append(event.payload["n"])
            await anyio.sleep(0)

        async def mail_in_session(event: Event[Any], session: AsyncSession) -> None:
            await mail(event)

        handler: Any = mail_in_session if with_session else mail
        outbox.listener("mailer", on="order.*", order="none", concurrency=3)(handler)

        async def produce_and_cancel(mine: list[int]) -> None:
            for n in mine:
                soon = timedelta(milliseconds=30) if n % 4 == 0 else None
                async with sessions.begin() as session:
                    event = session.add_event("order.placed", {"n": n}, delay=soon)
                for _ in range(chance.randrange(4)):
                    await anyio.sleep(0)
                if n % 3:
                    async with async_engine.begin() as connection:
                        found = await outbox.cancel(connection, event.event_id)
                        answers[n] = found["mailer"]

        sessions = outbox.async_sessionmaker(async_engine)
        async with consuming(outbox) as one, consuming(outbox) as other:
            await one.consumer.drain()
            async with anyio.create_task_group() as tasks:
                for part in range(4):
                    tasks.start_soon(produce_and_cancel, list(numbers[part::4]))

            def left() -> Any:
                return database.value(
                    "SELECT (SELECT count(*) FROM outbox_deliveries WHERE state <> 'cancelled')"
                    " + (SELECT count(*) FROM outbox_ranges)"
                )

            await one.consumer.drain()
            await other.consumer.drain()
            await comes_true(lambda: left() == 0)

        cancelled = {n for n, answer in answers.items() if answer == "cancelled"}
        assert len(started) == len(set(started))
        assert cancelled & set(started) == set()
        assert len(cancelled) > 10
        rows = database.deliveries("mailer")
        assert {row.state for row in rows} == {"cancelled"}
        # Whoever was not cancelled was started; one that was asked for may be either.
        asked = {n for n, answer in answers.items() if answer == "requested"}
        assert set(numbers) - cancelled - asked <= set(started)
        assert len(rows) + len(started) == len(numbers)
