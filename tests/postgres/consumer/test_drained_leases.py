"""No drain that returns holds a lease: not of a listener, and not of a queue's range.

Every drain of the test suite is followed by a look at the tables (``tests/support/drains.py``).
"""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from anyio.abc import TaskStatus
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from sa_outbox import Event, Outbox
from sa_outbox.consumer.connection.connections import Connection, Query
from sa_outbox.consumer.lease.lease import RELEASE_SECONDS
from sa_outbox.observe import RangeTaken
from tests.support import comes_true
from tests.support.drains import held_by

from .conftest import Database, Producer, make_consumer

pytestmark = pytest.mark.anyio

QUEUES, DRAINS = 9, 200


def feeding_each_other(outbox: Outbox, producer: Producer, got: list[tuple[str, int]]) -> None:
    """Each queue adds an event for the next one, as long as there are hops left."""

    def declare(number: int) -> None:
        @outbox.listener(f"queue{number}", on=f"hop.{number}", order="none")
        async def handle(event: Event[Any]) -> None:
            got.append((f"queue{number}", event.payload["n"]))
            if event.payload["n"] > 0:
                following = f"hop.{(number + 1) % QUEUES}"
                producer.add(event.payload["n"] - 1, event_type=following)

    for number in range(QUEUES):
        declare(number)


class SlowAnswers:
    """The database has taken a range; its answer takes a while, or is lost."""

    def __init__(self, patch: pytest.MonkeyPatch, *, lost: bool = False) -> None:
        self.taken, self.arrives = anyio.Event(), anyio.Event()
        rows = Connection.rows

        async def answer(connection: Connection, query: Query, /, **values: Any) -> list[Any]:
            found = await rows(connection, query, **values)
            if (
                "outbox_ranges" in query.sql
                and "INSERT" in query.sql
                and found
                and not self.taken.is_set()
            ):
                self.taken.set()
                if lost:
                    raise ConnectionResetError
                await self.arrives.wait()
            return found

        patch.setattr(Connection, "rows", answer)


@pytest.fixture
def mailed(outbox: Outbox) -> list[int]:
    """What a queue, "mail", was given."""
    got: list[int] = []

    @outbox.listener("mail", on="order.*", order="none")
    async def send(event: Event[Any]) -> None:
        got.append(event.payload["n"])

    return got


async def taken_after_a_crash(outbox: Outbox, engine: AsyncEngine) -> list[Any]:
    """What the next drain takes for left by a process that died."""
    consumer, recorder = make_consumer(outbox, engine)
    await consumer.drain()
    return recorder.of(RangeTaken, after_crash=True)


@pytest.mark.parametrize("end", ["stopped", "cancelled"])
async def test_a_take_under_way_while_the_consumer_ends_leaves_no_lease(
    end: str,
    mailed: list[int],
    outbox: Outbox,
    producer: Producer,
    database: Database,
    async_engine: AsyncEngine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = SlowAnswers(monkeypatch)
    producer.add(1)
    consumer, _ = make_consumer(outbox, async_engine)
    async with anyio.create_task_group() as tasks:
        await tasks.start(consumer.run)
        await answers.taken.wait()
        if end == "stopped":
            consumer.stop()
            announced = "SELECT FROM outbox_consumers"  # it is withdrawn: nothing is waited for
            await comes_true(lambda: not database.rows(announced))
        else:
            tasks.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            await anyio.wait_all_tasks_blocked()
        answers.arrives.set()

    assert await held_by(consumer) == []
    assert await taken_after_a_crash(outbox, async_engine) == []
    assert mailed == [1]


async def test_a_take_whose_answer_is_lost_is_given_back_at_the_end(
    mailed: list[int],
    outbox: Outbox,
    producer: Producer,
    async_engine: AsyncEngine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = SlowAnswers(monkeypatch, lost=True)
    producer.add(1)
    consumer, _ = make_consumer(outbox, async_engine)
    async with anyio.create_task_group() as tasks:
        await tasks.start(consumer.run)
        await answers.taken.wait()
        consumer.stop()

    assert await held_by(consumer) == []
    assert await taken_after_a_crash(outbox, async_engine) == []
    assert mailed == [1]


async def test_a_take_that_is_answered_after_another_connection_has_ended_is_given_back(
    mailed: list[int],
    outbox: Outbox,
    producer: Producer,
    database: Database,
    async_engine: AsyncEngine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was read for it may be of another history. Its own process would not know of it, and
    nobody would handle its events until the lease expires, after half a minute."""
    answers = SlowAnswers(monkeypatch)
    producer.add(1)
    consumer, _ = make_consumer(outbox, async_engine)
    async with anyio.create_task_group() as tasks:
        await tasks.start(consumer.run)
        await answers.taken.wait()
        assert consumer._services is not None
        consumer._services.context.continuity.doubt()
        answers.arrives.set()
        await comes_true(lambda: mailed == [1], within=15)
        consumer.stop()

    assert database.rows("SELECT FROM outbox_ranges") == []


async def test_a_take_that_waits_for_a_lock_while_the_consumer_is_cancelled_leaves_no_lease(
    mailed: list[int],
    outbox: Outbox,
    producer: Producer,
    database: Database,
    async_engine: AsyncEngine,
) -> None:
    """Cut off, the server would commit the take once it has the lock: after the consumer has given
    back what it held, and with nobody left to know of it."""
    consumer, _ = make_consumer(outbox, async_engine)
    ended = anyio.Event()
    async with anyio.create_task_group() as tasks:

        async def run(*, task_status: TaskStatus[None]) -> None:
            try:
                await consumer.run(task_status=task_status)
            finally:
                ended.set()

        await tasks.start(run)
        with database.engine.begin() as connection:
            connection.execute(text("SELECT FROM outbox_listeners FOR UPDATE"))
            producer.add(1)
            await comes_true(database.waiting_backends)
            tasks.cancel_scope.cancel()
            with anyio.CancelScope(shield=True), anyio.move_on_after(RELEASE_SECONDS / 2):
                await ended.wait()

    await comes_true(lambda: not database.backends())
    assert await held_by(consumer) == []
    assert await taken_after_a_crash(outbox, async_engine) == []
    assert mailed == [1]


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.woken_by("notify")
async def test_two_hundred_drains_of_nine_queues_that_feed_each_other_leave_nothing(
    outbox: Outbox, producer: Producer, async_engine: AsyncEngine, database: Database
) -> None:
    got: list[tuple[str, int]] = []
    hops = 5
    feeding_each_other(outbox, producer, got)

    for number in range(DRAINS):
        producer.add(hops, event_type=f"hop.{number % QUEUES}")
        consumer, _ = make_consumer(outbox, async_engine)
        await consumer.drain(retries=False)
    for _ in range(hops):  # what handlers add is for the next drain
        consumer, _ = make_consumer(outbox, async_engine)
        await consumer.drain(retries=False)

    assert len(got) == DRAINS * (hops + 1)
    assert database.rows("SELECT FROM outbox_ranges") == []
    assert database.rows("SELECT FROM outbox_deliveries") == []
    (behind,) = database.rows(
        "SELECT count(*) FROM outbox AS o JOIN outbox_listeners AS l"
        " ON o.event_type = replace(l.name, 'queue', 'hop.') AND o.id > l.last_processed_id"
    )
    assert behind.count == 0


async def test_deliveries_whose_events_are_gone_leave_no_lease(
    mailed: list[int],
    outbox: Outbox,
    producer: Producer,
    database: Database,
    async_engine: AsyncEngine,
) -> None:
    """Somebody has deleted what a retry waits for: nothing comes of the range, and it is written
    off at once. It was unknown to its process, and counted as a crash when its lease expired."""
    producer.add(1, 2)
    await make_consumer(outbox, async_engine)[0].drain()
    database.rows(
        "INSERT INTO outbox_deliveries (listener, position, event_id, event_type, state, due_at,"
        " attempts) SELECT 'mail', id, event_id, event_type, 'scheduled', now(), 1 FROM outbox"
    )
    database.rows("DELETE FROM outbox")
    producer.add(3)

    with anyio.fail_after(20):
        await make_consumer(outbox, async_engine)[0].drain()

    assert mailed == [1, 2, 3]
    assert database.rows("SELECT * FROM outbox_ranges") == []
