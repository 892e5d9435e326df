"""A consumer that has nothing to do closes every connection, and begins again when it is woken."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from sa_outbox import Event, Outbox, RetryPolicy
from sa_outbox.consumer import Consumer, ConsumerSettings
from sa_outbox.consumer.idle import outlook, restarts, watcher
from sa_outbox.errors import NotDrained
from sa_outbox.monitoring import Monitor
from sa_outbox.observe import (
    ConsumerAsleep,
    ConsumerAwake,
    ConsumerStarted,
    ConsumerStopping,
    DeliverySettled,
    Observation,
)
from tests.support import comes_true

from .conftest import Consuming, Database, Producer, Running

pytestmark = [pytest.mark.anyio, pytest.mark.woken_by("notify")]
SOON = timedelta(milliseconds=200)


@pytest.fixture
def got() -> list[int]:
    return []


@pytest.fixture
def outbox(got: list[int]) -> Outbox:
    """Its producer is another program: it has an outbox of its own, and nobody is notified."""
    outbox = Outbox()

    @outbox.listener("l", on="order.*")
    async def listen(event: Event[Any], session: AsyncSession) -> None:
        got.append(event.payload["n"])

    @outbox.listener("q", on="order.*", order="none")
    async def work(event: Event[Any]) -> None: ...

    return outbox


@pytest.fixture
def others(database: Database) -> Producer:
    return Producer(Outbox(notify="off"), database.engine)


def connections(database: Database) -> list[Any]:
    """All but this test's own, and their last statements."""
    return database.rows(
        "SELECT application_name, state, query FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        " AND backend_type = 'client backend' AND application_name <> 'test'"
    )


async def asleep(running: Running, times: int = 1) -> ConsumerAsleep:
    return (await running.recorder.seen(ConsumerAsleep, times=times))[-1]


async def test_nobody_is_connected_while_nothing_happens(
    outbox: Outbox,
    producer: Producer,
    consuming: Consuming,
    database: Database,
    others: Producer,
    got: list[int],
) -> None:
    producer.add(1)  # it has notified: over a connection that is kept
    async with consuming(outbox, idle_after=SOON) as running:
        sleep = await asleep(running)
        assert (got, sleep.seconds) == ([1], None)
        database.engine.dispose()
        assert database.value("SELECT count(locked_by) FROM outbox_listeners") == 0
        for _ in range(20):  # five times as long as it takes to fall asleep
            assert connections(database) == []
            await anyio.sleep(0.05)

        others.add(2)
        running.consumer.wake()
        await comes_true(lambda: got == [1, 2])
        await asleep(running, 2)
        database.engine.dispose()
        await comes_true(lambda: connections(database) == [])

    assert [each.by for each in running.recorder.of(ConsumerAwake)] == ["wake", "stop"]


async def test_what_this_process_adds_wakes_it(
    outbox: Outbox, producer: Producer, consuming: Consuming, got: list[int]
) -> None:
    async with consuming(outbox, idle_after=SOON) as running:
        await asleep(running)
        producer.add(1)
        await comes_true(lambda: got == [1])

    assert running.recorder.of(ConsumerAwake)[0].by == "events"


async def test_it_wakes_for_what_is_scheduled(
    outbox: Outbox, consuming: Consuming, others: Producer, got: list[int]
) -> None:
    others.add(5, run_at=datetime.now(UTC) + timedelta(seconds=3))
    async with consuming(outbox, idle_after=SOON) as running:
        sleep = await asleep(running)
        await comes_true(lambda: got == [5])

    assert sleep.seconds is not None
    assert SOON.total_seconds() < sleep.seconds < 3
    assert running.recorder.of(ConsumerAwake)[0].by == "time"


@pytest.mark.parametrize("order", ["key", "total", "none"])
async def test_it_wakes_for_a_retry(
    consuming: Consuming, others: Producer, database: Database, order: Any
) -> None:
    outbox, attempts = Outbox(), []
    retry = RetryPolicy(attempts=2, base=timedelta(seconds=2), jitter=False)

    @outbox.listener("l", on="order.*", order=order, retry=retry)
    async def listen(event: Event[Any]) -> None:
        attempts.append(event.attempt)
        if event.attempt == 1:
            raise ValueError("not yet")

    others.add(1)
    async with consuming(outbox, idle_after=SOON) as running:
        sleep = await asleep(running)
        assert attempts == [1]
        await comes_true(lambda: attempts == [1, 2])

    assert sleep.seconds is not None
    assert sleep.seconds < 2


async def test_a_cron_wakes_it(outbox: Outbox, consuming: Consuming, got: list[int]) -> None:
    outbox.cron("0 3 * * *", "order.tick", {"n": 7}, time_zone="UTC")
    async with consuming(outbox, idle_after=SOON) as running:
        sleep = await asleep(running)

    now = datetime.now(UTC)
    at = now.replace(hour=3, minute=0, second=0, microsecond=0)
    at = at if at > now else at + timedelta(days=1)
    assert sleep.seconds == pytest.approx((at - now).total_seconds(), abs=30)


async def test_a_slow_poll_is_a_choice(
    outbox: Outbox, consuming: Consuming, others: Producer, got: list[int]
) -> None:
    patience = {"idle_after": SOON, "idle_poll_interval": timedelta(seconds=0.5)}
    async with consuming(outbox, **patience) as running:
        sleep = await asleep(running)
        assert sleep.seconds is not None
        assert 0.2 < sleep.seconds <= 0.5
        others.add(1)
        await comes_true(lambda: got == [1])


async def test_it_does_not_sleep_while_a_transaction_is_open_that_has_written(
    outbox: Outbox, consuming: Consuming, others: Producer, got: list[int]
) -> None:
    async with consuming(outbox, idle_after=SOON) as running:
        with others.open() as session:
            session.add_event("order.placed", {"n": 1})
            session.flush()
            await anyio.sleep(4 * SOON.total_seconds())
            assert running.recorder.of(ConsumerStopping) == []
        await asleep(running)

    assert got == [1]


async def test_it_does_not_sleep_while_a_handler_runs(
    consuming: Consuming, database: Database, others: Producer
) -> None:
    outbox, go_on = Outbox(), anyio.Event()

    @outbox.listener("l", on="order.*")
    async def listen(event: Event[Any]) -> None:
        await go_on.wait()

    others.add(1)
    async with consuming(outbox, idle_after=SOON) as running:
        await anyio.sleep(4 * SOON.total_seconds())
        assert running.recorder.of(ConsumerStopping) == []
        go_on.set()
        await asleep(running)
        assert len(running.recorder.of(DeliverySettled)) == 1


async def test_a_request_wakes_it_and_it_is_ready_all_the_time(
    outbox: Outbox, async_engine: AsyncEngine, consuming: Consuming
) -> None:
    def ask(monitor: Monitor, line: bytes) -> int:
        return int(monitor.respond(line + b" HTTP/1.1\r\n\r\n")[0])

    async with consuming(outbox, idle_after=SOON) as running:
        with Monitor(running.consumer) as monitor:
            await asleep(running, 1)
            running.consumer.wake()
            await asleep(running, 2)
            assert ask(monitor, b"GET /readyz") == 200
            assert ask(monitor, b"POST /healthz") == 405
            assert ask(monitor, b"POST /wake") == 202
            await running.recorder.seen(ConsumerStarted, times=3)
    assert running.recorder.of(ConsumerAwake)[1].by == "wake"

    with Monitor(Consumer(outbox, async_engine, settings=ConsumerSettings())) as monitor:
        assert ask(monitor, b"POST /wake") == 405


async def test_without_the_setting_it_never_sleeps_and_wake_does_nothing(
    outbox: Outbox, consuming: Consuming
) -> None:
    async with consuming(outbox) as running:
        await running.listening()
        running.consumer.wake()

    assert running.recorder.of(ConsumerAsleep) == []


class Waker:
    """Does something in the moment in which a consumer that falls asleep stops."""

    wants_only = frozenset({ConsumerStopping})

    def __init__(self, act: Callable[[], object]) -> None:
        self._act = act
        self.times = 0

    def __call__(self, observation: Observation) -> None:
        self.times += 1
        if self.times == 1:
            self._act()


async def test_what_this_process_adds_while_it_falls_asleep_is_delivered(
    outbox: Outbox, producer: Producer, consuming: Consuming, got: list[int]
) -> None:
    async with consuming(outbox, idle_after=SOON) as running:
        running.consumer.observers.add(Waker(lambda: producer.add(1)))
        await comes_true(lambda: got == [1])


async def test_what_others_add_while_it_falls_asleep_is_delivered(
    outbox: Outbox, others: Producer, consuming: Consuming, got: list[int]
) -> None:
    """They call ``wake`` when there is no sleep yet: it asks the database once more."""
    async with consuming(outbox, idle_after=SOON) as running:
        running.consumer.observers.add(Waker(lambda: others.add(1)))
        await comes_true(lambda: got == [1])
        await asleep(running)  # once there is nothing more

    assert len(running.recorder.of(ConsumerStarted)) > 1


async def test_who_calls_wake_before_there_is_a_sleep_is_heard(
    outbox: Outbox, consuming: Consuming, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call came after it had asked what is due, and says that this was changed."""
    calls: list[outlook.Due] = []
    ask = outlook.due

    async def due(services: Any, crons: Any) -> Any:
        found = await ask(services, crons)
        calls.append(found)
        if len(calls) == 1:
            running.consumer.wake()
        return found

    monkeypatch.setattr(watcher, "due", due)
    async with consuming(outbox, idle_after=SOON) as running:
        await asleep(running)

    assert len(calls) == 2


async def test_a_database_that_can_not_be_asked_again_keeps_it_awake(
    outbox: Outbox, consuming: Consuming, others: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: list[bool] = []
    ask = outlook.committed_to

    async def committed_to(services: Any) -> int | None:
        if not failed:
            failed.append(True)
            raise ConnectionError
        return await ask(services)

    monkeypatch.setattr(restarts, "committed_to", committed_to)
    async with consuming(outbox, idle_after=SOON) as running:
        await asleep(running)

    assert len(running.recorder.of(ConsumerStarted)) == 2


@pytest.mark.parametrize(("order", "table"), [("key", "listeners"), ("none", "ranges")])
async def test_it_does_not_sleep_before_the_work_of_a_dead_consumer_is_done(
    consuming: Consuming, database: Database, others: Producer, order: Any, table: str
) -> None:
    outbox, attempts, begun = Outbox(), [], anyio.Event()

    @outbox.listener("l", on="order.*", order=order)
    async def listen(event: Event[Any]) -> None:
        attempts.append(event.payload["n"])
        begun.set()
        if len(attempts) == 1:
            await anyio.sleep_forever()

    others.add(1)
    async with consuming(outbox, grace_period=SOON) as first:
        await begun.wait()
        database.rows(
            f"UPDATE outbox_{table} SET locked_by = 'dead', lease_token = lease_token + 1,"
            " lease_expires_at = now() + interval '2 seconds' WHERE locked_by IS NOT NULL"
        )
        await first.stop()

    async with consuming(outbox, idle_after=SOON) as running:
        await asleep(running)
        assert attempts == [1, 1]


async def test_while_others_are_there_it_sleeps_until_they_would_have_died(
    outbox: Outbox, consuming: Consuming, database: Database
) -> None:
    database.rows(
        "INSERT INTO outbox_consumers (owner, listeners, queues, expires_at)"
        " VALUES ('another', '{l}', '{q}', now() + interval '3 seconds'),"
        " ('a stranger', '{other}', '{}', now() + interval '1 hour')"
    )
    async with consuming(outbox, idle_after=SOON) as running:
        sleep = await asleep(running)
        assert sleep.seconds is not None
        assert sleep.seconds < 3
        assert (await asleep(running, 2)).seconds is None


async def test_a_paused_listener_with_a_retry_that_is_due_does_not_keep_it_awake(
    consuming: Consuming, database: Database, others: Producer
) -> None:
    outbox = Outbox()
    retry = RetryPolicy(attempts=2, base=timedelta(seconds=0.5), jitter=False)

    @outbox.listener("l", on="order.*", retry=retry)
    async def listen(event: Event[Any]) -> None:
        raise ValueError

    others.add(1)
    async with consuming(outbox) as running:
        await running.settled("l")
        database.rows("UPDATE outbox_listeners SET paused_at = now()")
    async with consuming(outbox, idle_after=SOON) as running:
        assert (await asleep(running)).seconds is None


async def test_a_drain_wakes_it(
    outbox: Outbox, consuming: Consuming, others: Producer, got: list[int]
) -> None:
    async with consuming(outbox, idle_after=SOON) as running:
        await asleep(running)
        others.add(1)
        await running.consumer.drain()
        assert got == [1]


async def test_a_drain_that_waits_for_a_retry_keeps_it_awake(
    consuming: Consuming, others: Producer
) -> None:
    outbox, attempts = Outbox(), []
    retry = RetryPolicy(attempts=2, base=timedelta(seconds=2), jitter=False)

    @outbox.listener("l", on="order.*", retry=retry)
    async def listen(event: Event[Any]) -> None:
        attempts.append(event.attempt)
        if event.attempt == 1:
            raise ValueError("not yet")

    async with consuming(outbox, idle_after=SOON) as running:
        others.add(1)
        await running.consumer.drain()
        assert (attempts, running.recorder.of(ConsumerAsleep)) == ([1, 2], [])


async def test_a_drain_goes_on_when_the_endpoints_were_changed_meanwhile(
    consuming: Consuming, others: Producer
) -> None:
    outbox, begun, go_on = Outbox(), anyio.Event(), anyio.Event()

    @outbox.listener("l", on="order.*")
    async def listen(event: Event[Any]) -> None:
        begun.set()
        await go_on.wait()

    others.add(1, 2)
    async with consuming(outbox) as running, anyio.create_task_group() as tasks:
        tasks.start_soon(running.consumer.drain)
        await begun.wait()
        running.consumer._restarts.serve_again()
        await running.recorder.seen(ConsumerStopping)
        go_on.set()

    assert len(running.recorder.of(DeliverySettled)) == 2


async def test_a_stop_while_it_sleeps_ends_a_drain(outbox: Outbox, consuming: Consuming) -> None:
    async def drain() -> None:
        with pytest.raises(NotDrained):
            await running.consumer.drain()

    async with consuming(outbox, idle_after=SOON) as running:
        await asleep(running)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(drain)
            running.consumer.stop()
