"""What a person does to a listener while its consumers run: no event is lost, or twice there."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from sa_outbox import Event, Outbox
from sa_outbox.errors import ListenerInUse, ListenerNotFound, NotSkipped
from sa_outbox.observe import LeaseClaimed, LeaseDropped, LeaseReleased
from sa_outbox.operations import listeners as operations
from sa_outbox.operations.operator import Operator, current_operator
from tests.support import comes_true

from .conftest import LATER, ONCE, Consuming, Database, Producer

pytestmark = [pytest.mark.anyio, pytest.mark.woken_by("notify")]

ME = Operator(who="ann", why="a bug")
EFFECT = text("INSERT INTO effects VALUES ('mail', :n)")
ORDERS = pytest.mark.parametrize("order", ["key", "total", "none"])


class Mail:
    """A listener that fails for the numbers in ``bad``, and waits at those in ``slow``."""

    def __init__(self, outbox: Outbox, **options: Any) -> None:
        self.got: list[int] = []
        self.bad: set[int] = set()
        self.slow: set[int] = set()
        self.begun, self.go_on = anyio.Event(), anyio.Event()
        outbox.listener("mail", on="order.*", **{"retry": ONCE, **options})(self.send)

    async def send(self, event: Event[Any], session: AsyncSession) -> None:
        n = event.payload["n"]
        if n in self.slow:
            self.begun.set()
            await self.go_on.wait()
        if n in self.bad:
            raise ValueError("no such address")
        await session.execute(EFFECT, {"n": n})
        self.got.append(n)


def move(database: Database, outbox: Outbox, operation: Any, **options: Any) -> Any:
    with database.engine.begin() as connection:
        return operation(connection, outbox.tables, "mail", ME, **options)


def audited(database: Database) -> list[tuple[str, str, str | None]]:
    found = database.rows(
        "SELECT action, actor_id, detail ->> 'why' FROM outbox_audit WHERE listener = 'mail'"
        " ORDER BY id"
    )
    return [tuple(row) for row in found]


@ORDERS
async def test_pause_and_resume_reach_a_running_consumer_at_once(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming, order: Any
) -> None:
    mail = Mail(outbox, order=order)
    async with consuming(outbox) as running:
        producer.add(1)
        await running.done("mail")
        await running.listening()

        assert move(database, outbox, operations.pause_listener) is True
        assert move(database, outbox, operations.pause_listener) is False
        if order != "none":
            await running.recorder.seen(LeaseReleased)
        producer.add(2)
        with anyio.fail_after(10):
            await running.consumer.drain()
        assert mail.got == [1]
        assert move(database, outbox, operations.resume_listener) is True
        await running.done("mail", 2)

    assert mail.got == [1, 2]
    assert audited(database) == [("paused", "ann", "a bug"), ("resumed", "ann", "a bug")]


@ORDERS
async def test_a_rewind_under_a_running_consumer_delivers_everything_again(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming, order: Any
) -> None:
    """In the middle of a handler: what that does is rolled back, and comes at its new turn."""
    mail = Mail(outbox, order=order)
    async with consuming(outbox) as running:
        producer.add(1, 2, 3, key="a")
        await running.done("mail", 3)
        mail.slow = {4}
        producer.add(4, key="a")
        with anyio.fail_after(10):
            await mail.begun.wait()

        moved = move(database, outbox, operations.rewind_listener, to=2)
        mail.slow = set()
        mail.go_on.set()
        await running.done("mail", 6)
        with anyio.fail_after(10):
            await (
                running.consumer.drain()
            )  # the cursor that ended late has not removed its successor

    assert [each.position for each in moved.cursors] == [1]
    assert database.effects("mail") == [1, 2, 2, 3, 3, 4]
    if order != "none":
        assert [n for n in mail.got if n != 4] == [1, 2, 3, 2, 3]  # nothing of these was in hand
    assert database.listener("mail").last_processed_id == 4
    assert audited(database) == [("rewound", "ann", "a bug")]


async def test_a_cursor_that_ends_late_does_not_remove_its_successor(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    """The handler takes no notice of being cancelled: its cursor ends long after the next began."""
    begun, go_on, again = anyio.Event(), anyio.Event(), anyio.Event()

    @outbox.listener("mail", on="order.*", concurrency=2)
    async def send(event: Event[Any]) -> None:
        if event.payload["n"] == 1 and not begun.is_set():
            begun.set()
            with anyio.CancelScope(shield=True):
                await go_on.wait()
        elif event.payload["n"] == 1:
            again.set()

    async with consuming(outbox) as running:
        producer.add(1)
        with anyio.fail_after(10):
            await begun.wait()
        move(database, outbox, operations.rewind_listener, to="beginning")
        with anyio.fail_after(10):
            await again.wait()
        await running.recorder.seen(LeaseClaimed, listener="mail", times=2)
        go_on.set()
        await running.recorder.seen(LeaseDropped, listener="mail")
        services = running.consumer._services
        assert services is not None
        (cursor,) = services.workload.holder.loops.values()
        assert cursor.lease is services.leases.held["mail", 0]
        with anyio.fail_after(10):
            await running.consumer.drain()
        producer.add(2)
        await running.done("mail", 2)


@ORDERS
async def test_what_waits_and_what_is_dead_comes_with_the_log_again_once(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming, order: Any
) -> None:
    mail = Mail(outbox, order=order, retry=LATER if order != "total" else ONCE)
    mail.bad = {1, 3}
    async with consuming(outbox) as running:
        producer.add(1, key="a")
        producer.add(2, 3, 4, key="b")
        producer.add(5, run_at=datetime.now(UTC) + timedelta(hours=1))
        if order == "total":
            await running.dead("mail", 2)
            await running.done("mail", 2)
        else:
            await running.settled("mail", 2, outcome="retry")
        await comes_true(lambda: any(row.position == 5 for row in database.deliveries("mail")))
        await running.consumer.drain(retries=False)
    waiting = len(database.deliveries("mail"))
    mail.bad, mail.got = set(), []

    moved = move(database, outbox, operations.rewind_listener, to=2)
    async with consuming(outbox) as running:
        await running.done("mail", 3)
        await running.consumer.drain(retries=False)

    assert moved.deliveries == waiting - (order != "total")  # event 1 waits on
    assert sorted(mail.got) == [2, 3, 4]
    if order != "none":
        assert mail.got == [2, 3, 4]
    left = [row.position for row in database.deliveries("mail")]
    assert left == ([5] if order == "total" else [1, 5])
    if order == "total":
        assert moved.dead_letters == 1
        assert [each.resolution for each in database.dead_letters("mail")] == [None, "replayed"]


async def test_what_was_cancelled_is_edited_or_is_being_replayed_stays_in_its_place(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    mail = Mail(outbox, order="none")
    async with consuming(outbox) as running:
        producer.add(*range(1, 9))
        await running.done("mail", 8)
    mail.got.clear()
    copied = "gen_random_uuid(), 'order.placed'"
    database.rows(
        "INSERT INTO outbox_deliveries (listener, position, event_id, event_type, state)"
        f" SELECT 'mail', 3, {copied}, 'cancelled'"
    )
    database.rows(
        "INSERT INTO outbox_dead_letters (listener, position, event_id, event_type, payload,"
        f" event_created_at, reason, edits) SELECT 'mail', 5, {copied}, '1', clock_timestamp(),"
        " 'attempts', 1"
    )
    database.rows(
        "INSERT INTO outbox_deliveries (listener, position, event_id, event_type, state, due_at,"
        f" dead_letter) SELECT 'mail', 7, {copied}, 'parked',"
        " clock_timestamp() + interval '1 hour', 77"
    )

    moved = move(database, outbox, operations.rewind_listener, to=2)
    async with consuming(outbox) as running:
        await running.done("mail", 4)
        await running.consumer.drain(retries=False)

    assert [each.position for each in moved.cursors] == [7]
    assert sorted(mail.got) == [2, 4, 6, 8]
    assert database.listener("mail").gaps == []


async def test_ranges_of_a_queue_are_dissolved_and_nothing_of_them_is_lost(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    """A process died with events in hand: one below the place, one above, one with a row."""
    mail = Mail(outbox, order="none")
    async with consuming(outbox) as running:
        producer.add(*range(1, 7))
        await running.done("mail", 6)
    mail.got.clear()
    database.rows(
        "INSERT INTO outbox_ranges (listener, last_processed_id, gaps, locked_by,"
        " lease_expires_at) VALUES ('mail', 6, '[[1, 2], [6, 6]]', 'gone',"
        " clock_timestamp() + interval '1 hour')"
    )
    database.rows(
        "INSERT INTO outbox_deliveries (listener, position, event_id, event_type, state, due_at,"
        " attempts, range) SELECT 'mail', 2, event_id, event_type, 'scheduled', clock_timestamp(),"
        " 1, (SELECT number FROM outbox_ranges) FROM outbox WHERE id = 2"
    )

    move(database, outbox, operations.rewind_listener, to=5)
    async with consuming(outbox) as running:
        await running.done("mail", 4)
        await running.consumer.drain()

    assert sorted(mail.got) == [1, 2, 5, 6]
    assert database.rows("SELECT FROM outbox_ranges") == []
    assert database.deliveries("mail") == []


async def test_a_partitioned_listener_is_rewound_to_a_time_in_all_its_partitions(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    Mail(outbox, partitions=3)
    async with consuming(outbox) as running:
        for n in range(1, 10):
            producer.add(n, key=f"k{n}")
        await running.done("mail", 9)
        since = database.value("SELECT created_at FROM outbox WHERE id = 4")
        moved = move(database, outbox, operations.rewind_listener, to=since)
        await running.done("mail", 15)
        await running.consumer.drain()

    assert [(each.partition, each.position) for each in moved.cursors] == [(0, 3), (1, 3), (2, 3)]
    assert database.effects("mail") == [1, 2, 3, *(n for n in range(4, 10) for _ in range(2))]


@ORDERS
async def test_a_skip_passes_what_was_not_taken_and_no_transaction_that_is_open(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming, order: Any
) -> None:
    mail = Mail(outbox, order=order)
    async with consuming(outbox) as running:
        producer.add(1)
        await running.done("mail")
    with producer.open() as session:
        session.add_event("order.placed", {"n": 2})
        session.flush()
        producer.add(3, 4)
        moved = move(database, outbox, operations.skip_listener, to="now")
        producer.add(5)

    async with consuming(outbox) as running:
        await running.done("mail", 2)
        await running.consumer.drain()

    assert moved.held_back == 1
    assert sorted(mail.got) == [1, 2, 5]


async def test_a_skip_goes_to_an_id_or_a_time_and_never_beyond_the_log(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    mail = Mail(outbox)
    async with consuming(outbox) as running:
        pass
    for n in range(1, 7):
        producer.add(n)

    move(database, outbox, operations.skip_listener, to=2)
    before = database.value("SELECT created_at FROM outbox WHERE id = 5")
    moved = move(database, outbox, operations.skip_listener, to=before)
    async with consuming(outbox) as running:
        await running.done("mail", 2)
    move(database, outbox, operations.skip_listener, to=10**9)

    assert [(each.before, each.position) for each in moved.cursors] == [(2, 4)]
    assert mail.got == [5, 6]
    assert database.listener("mail").last_processed_id == 6


async def test_the_one_event_it_is_stuck_at_is_skipped(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    mail = Mail(outbox, order="total", retry=LATER)
    mail.bad = {2}
    async with consuming(outbox) as running:
        producer.add(1, 2, 3)
        await running.settled("mail", outcome="retry")
        assert move(database, outbox, operations.skip_event) == 2
        await running.done("mail", 2)
        with pytest.raises(NotSkipped, match="not stuck"):
            move(database, outbox, operations.skip_event)
        with pytest.raises(NotSkipped, match="has already settled"):
            move(database, outbox, operations.skip_event, position=3)
        with pytest.raises(NotSkipped, match="no event"):
            move(database, outbox, operations.skip_event, position=9)

    assert database.effects("mail") == [1, 3]
    assert database.rows("SELECT event_id FROM outbox_audit") == database.rows(
        "SELECT event_id FROM outbox WHERE id = 2"
    )


async def test_what_its_partition_has_settled_is_not_skipped_because_another_is_behind(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    Mail(outbox, partitions=2)
    async with consuming(outbox) as running:
        producer.add(1, key="k")
        await running.done("mail")
        await running.consumer.drain()
    # Whichever the key is not in.
    database.rows(
        "UPDATE outbox_listeners SET last_processed_id = 0 WHERE partition ="
        " 1 - mod(CAST(CAST('x' || encode(substring(sha256('k') FROM 1 FOR 4), 'hex') AS bit(32))"
        " AS bigint), 2)"
    )

    with pytest.raises(NotSkipped, match="has already settled"):
        move(database, outbox, operations.skip_event, position=1)


async def test_one_that_is_parked_is_skipped_and_those_behind_it_go_on(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    mail = Mail(outbox, retry=LATER)
    mail.bad = {1}
    async with consuming(outbox) as running:
        producer.add(1, 2, key="a")
        await comes_true(lambda: len(database.deliveries("mail")) == 2)
        move(database, outbox, operations.skip_event, position=1)
        await running.done("mail")

    # Not mail.got: who has lost the lease may begin it too, and is rolled back.
    assert database.effects("mail") == [2]


async def test_one_that_is_gone_is_retired_and_its_dead_letters_stay(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    mail = Mail(outbox, retry=LATER, partitions=2)
    mail.bad = {1}
    async with consuming(outbox) as running:
        producer.add(1, 2, key="a")
        await running.settled("mail", outcome="retry")
        await comes_true(lambda: len(database.deliveries("mail")) == 2)
        with pytest.raises(ListenerInUse):
            move(database, outbox, operations.retire_listener)
    database.rows(
        "INSERT INTO outbox_dead_letters (listener, position, event_id, event_type, payload,"
        " event_created_at, reason) SELECT 'mail', id, event_id, event_type, payload, created_at,"
        " 'attempts' FROM outbox WHERE id = 1"
    )

    gone = move(database, outbox, operations.retire_listener)

    assert gone == operations.Retired(name="mail", partitions=2, deliveries=2, ranges=0)
    assert database.rows("SELECT FROM outbox_listeners") == database.deliveries("mail") == []
    assert len(database.dead_letters("mail")) == 1
    with pytest.raises(ListenerNotFound):
        move(database, outbox, operations.retire_listener)
    with pytest.raises(ListenerNotFound):
        move(database, outbox, operations.pause_listener)


def test_who_it_is_comes_from_the_system() -> None:
    assert current_operator("because").who
    assert current_operator("because").why == "because"
