"""outbox.status: what became of an event, for each listener."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import anyio
import pytest
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from sa_outbox import Category, Event, Outbox
from sa_outbox.client.status import EventStatus, ListenerStatus
from sa_outbox.consumer.position.partition import partition_of
from sa_outbox.errors import EventNotFound, InvalidEvent, WrongArgument
from sa_outbox.settings import Notify
from tests.support import comes_true

from .conftest import LATER, ONCE, QUICK, Consuming, Database, Producer

pytestmark = [pytest.mark.anyio, pytest.mark.woken_by("poll")]

HOUR = timedelta(hours=1)


def add(producer: Producer, n: int = 1, **options: Any) -> UUID:
    with producer.open() as session:
        return session.add_event("order.placed", {"n": n}, **options).event_id


def status(outbox: Outbox, database: Database, *arguments: Any, **options: Any) -> EventStatus:
    with database.engine.connect() as connection:
        found: EventStatus = outbox.status(connection, *arguments, **options)
        return found


def of(outbox: Outbox, database: Database, event_id: UUID, name: str = "l") -> ListenerStatus:
    return status(outbox, database, event_id).listeners[name]


@pytest.mark.parametrize("order", ["none", "key", "total"])
class TestStates:
    async def test_pending_then_running_or_pending_then_succeeded(
        self,
        outbox: Outbox,
        producer: Producer,
        database: Database,
        consuming: Consuming,
        order: Any,
    ) -> None:
        begun, go_on = anyio.Event(), anyio.Event()

        @outbox.listener("l", on="order.*", order=order)
        async def listen(event: Event[Any]) -> None:
            begun.set()
            await go_on.wait()

        event_id = add(producer)
        assert of(outbox, database, event_id) == ListenerStatus(state="pending")
        async with consuming(outbox) as running:
            await begun.wait()
            # Only of a queue the database knows what has been taken.
            expected: Any = "running" if order == "none" else "pending"
            assert of(outbox, database, event_id) == ListenerStatus(state=expected)
            go_on.set()
            await running.done("l")
            await running.consumer.drain()
        assert of(outbox, database, event_id) == ListenerStatus(state="succeeded")
        other = add(producer)
        assert of(outbox, database, other).state == "pending"

    async def test_scheduled_is_pending_with_its_time(
        self,
        outbox: Outbox,
        producer: Producer,
        database: Database,
        consuming: Consuming,
        order: Any,
    ) -> None:
        @outbox.listener("l", on="order.*", order=order)
        async def listen(event: Event[Any]) -> None: ...

        at = datetime.now(UTC) + HOUR
        event_id = add(producer, run_at=at)
        async with consuming(outbox):
            await comes_true(lambda: len(database.deliveries("l")) == 1)
            found = of(outbox, database, event_id)

        assert found.state == "pending"
        assert found.due_at is not None
        assert abs(found.due_at - at) < timedelta(seconds=5)

    async def test_failed_says_when_it_is_attempted_again_and_why(
        self,
        outbox: Outbox,
        producer: Producer,
        database: Database,
        consuming: Consuming,
        order: Any,
    ) -> None:
        @outbox.listener("l", on="order.*", order=order, retry=LATER)
        async def listen(event: Event[Any]) -> None:
            raise ValueError("no such address")

        event_id = add(producer)
        async with consuming(outbox) as running:
            await running.settled("l", outcome="retry")
            found = of(outbox, database, event_id)

        assert (found.state, found.attempts) == ("failed", 1)
        assert (found.last_error_code, found.last_error) == ("ValueError", "no such address")
        assert found.due_at is not None
        assert found.due_at > datetime.now(UTC) + timedelta(minutes=2)

    async def test_dead_has_the_last_error(
        self,
        outbox: Outbox,
        producer: Producer,
        database: Database,
        consuming: Consuming,
        order: Any,
    ) -> None:
        @outbox.listener("l", on="order.*", order=order, retry=QUICK)
        async def listen(event: Event[Any]) -> None:
            raise ValueError("no such address")

        event_id = add(producer)
        async with consuming(outbox) as running:
            await running.dead("l")
            await running.consumer.drain()
        found = of(outbox, database, event_id)

        assert (found.state, found.attempts) == ("dead", 3)
        assert found.last_error == "no such address"
        database.rows(
            "UPDATE outbox_dead_letters SET resolution = 'discarded', resolved_at = now()"
        )
        assert of(outbox, database, event_id).state == "dead"
        database.rows("UPDATE outbox_dead_letters SET resolution = 'replayed'")
        assert of(outbox, database, event_id).state == "succeeded"

    async def test_a_result_is_told_when_it_is_done(
        self,
        outbox: Outbox,
        producer: Producer,
        database: Database,
        consuming: Consuming,
        order: Any,
    ) -> None:
        @outbox.listener("l", on="order.*", order=order, retry=QUICK)
        async def listen(event: Event[Any], session: AsyncSession) -> None:
            event.leave_result(f"s3://exports/{event.payload['n']}")

        @outbox.listener("plain", on="order.*", order=order, retry=QUICK)
        async def listen_too(event: Event[Any]) -> None:
            event.leave_result("s3://wrong")
            event.leave_result("s3://right")

        event_id = add(producer, 7)
        async with consuming(outbox) as running:
            await running.consumer.drain()

        assert of(outbox, database, event_id).result_ref == "s3://exports/7"
        assert of(outbox, database, event_id).state == "succeeded"
        assert of(outbox, database, event_id, "plain").result_ref == "s3://right"

    async def test_a_failed_attempt_leaves_no_result(
        self,
        outbox: Outbox,
        producer: Producer,
        database: Database,
        consuming: Consuming,
        order: Any,
    ) -> None:
        attempts = 0

        @outbox.listener("l", on="order.*", order=order, retry=QUICK)
        async def listen(event: Event[Any], session: AsyncSession) -> None:
            nonlocal attempts
            attempts += 1
            if attempts == 1:
                event.leave_result("s3://half")
                raise ValueError("no")

        event_id = add(producer)
        async with consuming(outbox) as running:
            await running.done("l")
            await running.consumer.drain()

        assert of(outbox, database, event_id) == ListenerStatus(state="succeeded")
        assert database.rows("SELECT * FROM outbox_results") == []


class TestQueues:
    async def test_cancelled_has_its_reason(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        begun = anyio.Event()

        @outbox.listener("l", on="order.*", order="none", cancellable=True)
        async def listen(event: Event[Any]) -> None:
            begun.set()
            await anyio.sleep_forever()

        running_id = add(producer, 1)
        async with consuming(outbox) as running:
            await begun.wait()
            waiting_id = add(producer, 2, run_at=datetime.now(UTC) + HOUR)
            await comes_true(lambda: len(database.deliveries("l")) == 1)
            for event_id in (running_id, waiting_id):
                with database.engine.begin() as connection:
                    outbox.cancel(connection, event_id, reason="changed my mind")
            await running.settled("l", outcome="cancelled")

        for event_id, attempts in ((running_id, 1), (waiting_id, 0)):
            found = of(outbox, database, event_id)
            assert (found.state, found.attempts) == ("cancelled", attempts)
            assert (found.cancel_requested, found.cancel_reason) == (True, "changed my mind")

    async def test_one_that_runs_says_that_it_is_to_be_cancelled(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        begun, go_on = anyio.Event(), anyio.Event()

        @outbox.listener("l", on="order.*", order="none")
        async def listen(event: Event[Any]) -> None:
            begun.set()
            await go_on.wait()

        event_id = add(producer)
        async with consuming(outbox) as running:
            await begun.wait()
            with database.engine.begin() as connection:
                outbox.cancel(connection, event_id)
            found = of(outbox, database, event_id)
            assert (found.state, found.cancel_requested) == ("running", True)
            go_on.set()
            await running.done("l")
            assert of(outbox, database, event_id).state == "succeeded"

    async def test_what_a_process_has_left_behind_is_pending(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        @outbox.listener("l", on="order.*", order="none")
        async def listen(event: Event[Any]) -> None: ...

        event_id = add(producer)
        async with consuming(outbox) as running:
            await running.consumer.drain()
        database.rows(
            "INSERT INTO outbox_ranges (listener, last_processed_id, gaps)"
            " VALUES ('l', 1, '[[1,1]]')"
        )

        assert of(outbox, database, event_id).state == "pending"

    async def test_a_request_that_nobody_will_answer_is_not_running(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        @outbox.listener("l", on="order.*", order="none")
        async def listen(event: Event[Any]) -> None: ...

        event_id = add(producer)
        async with consuming(outbox) as running:
            await running.consumer.drain()
        database.rows(
            "INSERT INTO outbox_deliveries (listener, position, event_id, event_type, state,"
            " due_at, range, cancel_requested_at)"
            " VALUES ('l', 1, :id, 'order.placed', 'scheduled', now(), 99, now())",
            id=event_id,
        )

        assert of(outbox, database, event_id) == ListenerStatus(state="succeeded")


class TestWhose:
    async def test_only_listeners_that_want_it_are_told_of(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        @outbox.listener("l", on="order.*")
        async def listen(event: Event[Any]) -> None: ...

        @outbox.listener("other", on="invoice.*")
        async def listen_elsewhere(event: Event[Any]) -> None: ...

        event_id = add(producer)
        async with consuming(outbox) as running:
            await running.consumer.drain()

        found = status(outbox, database, event_id)
        assert list(found.listeners) == ["l"]
        assert (found.event_id, found.event_type, found.position) == (event_id, "order.placed", 1)
        assert found.created_at is not None

    async def test_of_one_that_is_not_declared_nothing_is_known_unless_it_left_a_trace(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        @outbox.listener("l", on="order.*", retry=ONCE)
        async def listen(event: Event[Any]) -> None:
            if event.payload["n"] == 2:
                raise ValueError("no")

        done, dead = add(producer, 1), add(producer, 2)
        async with consuming(outbox) as running:
            await running.consumer.drain()

        stranger = Outbox(notify="off")
        assert of(stranger, database, done).state == "unknown"
        assert of(stranger, database, dead).state == "dead"

    def test_one_that_never_ran_will_begin_at_the_beginning_or_nobody_knows(
        self, outbox: Outbox, producer: Producer, database: Database
    ) -> None:
        @outbox.listener("l", on="order.*")
        async def listen(event: Event[Any]) -> None: ...

        @outbox.listener("late", on="order.*", start="now")
        async def listen_late(event: Event[Any]) -> None: ...

        event_id = add(producer)

        assert of(outbox, database, event_id).state == "pending"
        assert of(outbox, database, event_id, "late").state == "unknown"


class TestByKey:
    def test_the_event_of_an_idempotency_key_is_found(
        self, outbox: Outbox, producer: Producer, database: Database
    ) -> None:
        event_id = add(producer, idempotency_key="k", tenant="acme")
        asked = {"idempotency_key": "k", "event_type": "order.placed"}

        assert status(outbox, database, **asked, tenant="acme").event_id == event_id
        with pytest.raises(EventNotFound, match="no event has this idempotency key"):
            status(outbox, database, **asked)
        database.rows("UPDATE outbox_idempotency_keys SET expires_at = now()")
        with pytest.raises(EventNotFound):
            status(outbox, database, **asked, tenant="acme")

    async def test_when_the_log_was_pruned_the_result_is_still_known(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        @outbox.listener("l", on="order.*", order="none", retry=ONCE)
        async def listen(event: Event[Any]) -> None:
            event.leave_result("s3://7")

        @outbox.listener("silent", on="order.*")
        async def listen_silently(event: Event[Any]) -> None: ...

        @outbox.listener("broken", on="order.*", retry=ONCE)
        async def fail(event: Event[Any]) -> None:
            raise ValueError("no")

        event_id = add(producer, idempotency_key="k")
        async with consuming(outbox) as running:
            await running.consumer.drain()
        database.rows("DELETE FROM outbox")

        found = status(outbox, database, idempotency_key="k", event_type="order.placed")
        assert (found.event_id, found.position) == (event_id, None)
        assert found.event_type == "order.placed"
        states = {name: each.state for name, each in found.listeners.items()}
        assert states == {"l": "succeeded", "silent": "unknown", "broken": "dead"}
        assert found.listeners["l"].result_ref == "s3://7"
        assert status(outbox, database, event_id).listeners["l"].result_ref == "s3://7"

    async def test_a_result_is_kept_as_long_as_the_key_of_its_category(
        self, notify: Notify, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        mine = Category("mine", key_lifetime=timedelta(days=99))
        outbox = Outbox(notify=notify, categories={"order.*": mine})

        @outbox.listener("l", on="order.*")
        async def listen(event: Event[Any]) -> None:
            event.leave_result("s3://7")

        event_id = add(producer)
        async with consuming(outbox) as running:
            await running.consumer.drain()

        days = database.value("SELECT extract(day FROM expires_at - now()) FROM outbox_results")
        assert days in (98, 99)
        database.rows("UPDATE outbox_results SET expires_at = now()")
        assert of(outbox, database, event_id).result_ref is None


class TestMistakes:
    def test_an_unknown_event_is_an_error(self, outbox: Outbox, database: Database) -> None:
        with pytest.raises(EventNotFound, match="nothing is known"):
            status(outbox, database, uuid4())

    @pytest.mark.parametrize(
        ("arguments", "options", "error"),
        [
            ((), {}, WrongArgument),
            ((), {"idempotency_key": "k"}, WrongArgument),
            ((), {"event_type": "order.placed"}, WrongArgument),
            ((uuid4(),), {"idempotency_key": "k"}, WrongArgument),
            ((7,), {}, WrongArgument),
            (("x",), {}, InvalidEvent),
            ((), {"idempotency_key": "", "event_type": "order.placed"}, InvalidEvent),
            ((), {"idempotency_key": "k", "event_type": "order placed"}, InvalidEvent),
            ((), {"idempotency_key": "k", "event_type": 7}, WrongArgument),
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
        with pytest.raises(error):
            status(outbox, database, *arguments, **options)

    async def test_async_places_are_awaited(
        self, outbox: Outbox, producer: Producer, database: Database, async_engine: AsyncEngine
    ) -> None:
        event_id = add(producer)
        async with AsyncSession(async_engine) as session:
            assert (await outbox.status(session, event_id)).position == 1
        async with async_engine.connect() as connection:
            assert (await outbox.status(connection, event_id)).position == 1


async def test_of_a_partitioned_listener_the_cursor_of_its_own_partition_tells(
    outbox: Outbox, producer: Producer, database: Database
) -> None:
    @outbox.listener("l", on="order.*", partitions=4)
    async def listen(event: Event[Any]) -> None:
        raise NotImplementedError

    keys = [next(f"k{n}" for n in range(99) if partition_of(f"k{n}", 0, 4) == p) for p in range(4)]
    ids = [add(producer, key=key) for key in keys]
    for partition in range(4):  # the odd ones have come past all of it
        database.rows(
            "INSERT INTO outbox_listeners (name, partition, partition_count, last_processed_id)"
            " VALUES ('l', :partition, 4, :position)",
            partition=partition,
            position=100 * (partition % 2),
        )

    found = [of(outbox, database, each).state for each in ids]

    assert found == ["pending", "succeeded", "pending", "succeeded"]
