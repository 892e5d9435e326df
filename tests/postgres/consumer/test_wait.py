"""outbox.wait: until a listener has handled an event; and when that was."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import anyio
import anyio.to_thread
import pytest
from sqlalchemy import event as events
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from sa_outbox import Event, Outbox
from sa_outbox.client import wait
from sa_outbox.errors import ConfigError, EventNotFound, NotFinished, WrongArgument
from tests.support import comes_true
from tests.support.proxy import Proxy

from .conftest import LATER, ONCE, Consuming, Database, Producer

pytestmark = [pytest.mark.anyio, pytest.mark.woken_by("notify")]
SOON = timedelta(milliseconds=30)
IN_TIME = 8
"""Seconds: the query's own, and what it takes to give up a connection."""


def add(producer: Producer, n: int = 1, **options: Any) -> UUID:
    with producer.open() as session:
        return session.add_event("order.placed", {"n": n}, **options).event_id


@pytest.mark.parametrize("order", ["key", "total", "none"])
async def test_it_returns_when_the_listener_has_handled_the_event(
    outbox: Outbox,
    producer: Producer,
    consuming: Consuming,
    async_engine: AsyncEngine,
    order: Any,
) -> None:
    begun, go_on, returned = anyio.Event(), anyio.Event(), []

    @outbox.listener("l", on="order.*", order=order)
    async def listen(event: Event[Any]) -> None:
        begun.set()
        await go_on.wait()

    async def wait() -> None:
        returned.append(await outbox.wait(async_engine, event_id, listener="l"))

    event_id = add(producer)
    async with consuming(outbox), anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await begun.wait()
        assert returned == []
        go_on.set()

    (status,) = returned
    assert (status.state, status.finished_at) == ("succeeded", None)


async def test_a_sync_engine_waits_in_its_thread(
    outbox: Outbox, producer: Producer, consuming: Consuming, database: Database
) -> None:
    @outbox.listener("l", on="order.*", order="none")
    async def listen(event: Event[Any]) -> None:
        event.leave_result("s3://1")

    before = datetime.now(UTC) - timedelta(minutes=1)
    event_id = add(producer)
    async with consuming(outbox):
        status = await anyio.to_thread.run_sync(
            lambda: outbox.wait(database.engine, event_id, listener="l")
        )

    assert (status.state, status.result_ref) == ("succeeded", "s3://1")
    assert status.finished_at is not None
    assert status.finished_at > before


async def test_a_dead_letter_and_a_cancellation_end_it_and_say_when(
    outbox: Outbox,
    producer: Producer,
    consuming: Consuming,
    database: Database,
    async_engine: AsyncEngine,
) -> None:
    @outbox.listener("l", on="order.*", order="none", retry=ONCE)
    async def listen(event: Event[Any]) -> None:
        raise LookupError("no")

    dead, cancelled = add(producer), add(producer, 2, delay=timedelta(hours=1))
    async with consuming(outbox):
        first = await outbox.wait(async_engine, dead, listener="l")
        async with async_engine.begin() as connection:
            await outbox.cancel(connection, cancelled)
        second = await outbox.wait(async_engine, cancelled, listener="l")

    died_at = database.value("SELECT failed_at FROM outbox_dead_letters")
    assert (first.state, first.finished_at) == ("dead", died_at)
    assert second.state == "cancelled"
    assert second.finished_at is not None


@pytest.mark.parametrize(("order", "meanwhile"), [("key", "pending"), ("none", "running")])
async def test_neither_an_attempt_nor_its_failure_ends_it_while_another_follows(
    outbox: Outbox,
    producer: Producer,
    consuming: Consuming,
    database: Database,
    async_engine: AsyncEngine,
    order: Any,
    meanwhile: str,
) -> None:
    begun, go_on = anyio.Event(), anyio.Event()

    @outbox.listener("l", on="order.*", order=order, retry=LATER)
    async def listen(event: Event[Any]) -> None:
        begun.set()
        await go_on.wait()
        raise LookupError("no")

    async def state() -> object:
        with pytest.raises(NotFinished) as no:
            await outbox.wait(async_engine, event_id, listener="l", timeout=SOON)
        return no.value.state

    event_id = add(producer)
    async with consuming(outbox):
        await begun.wait()
        assert await state() == meanwhile
        go_on.set()
        failed = "SELECT 1 FROM outbox_deliveries WHERE attempts = 1"
        await comes_true(lambda: len(database.rows(failed)) == 1)
        assert await state() == "failed"


async def test_with_the_whole_audit_it_is_known_when_any_success_was(
    producer: Producer, consuming: Consuming, database: Database, async_engine: AsyncEngine
) -> None:
    outbox = Outbox(audit="all")

    @outbox.listener("l", on="order.*")
    async def listen(event: Event[Any]) -> None: ...

    event_id = add(producer)
    async with consuming(outbox):
        status = await outbox.wait(async_engine, event_id, listener="l")

    succeeded = "SELECT recorded_at FROM outbox_audit WHERE action = 'succeeded'"
    assert status.finished_at == database.value(succeeded)


class TestErrors:
    @pytest.fixture(autouse=True)
    def listener(self, outbox: Outbox) -> None:
        @outbox.listener("billing", on="order.*")
        async def listen(event: Event[Any]) -> None: ...

    async def test_after_its_time_it_says_what_the_state_is(
        self, outbox: Outbox, producer: Producer, async_engine: AsyncEngine
    ) -> None:
        event_id = add(producer)

        with pytest.raises(NotFinished, match=f"'billing' has not finished event {event_id}") as no:
            await outbox.wait(async_engine, event_id, listener="billing", timeout=SOON)

        assert isinstance(no.value, TimeoutError)
        assert no.value.state == "pending"
        assert str(no.value).endswith("it is pending. Does a consumer run?")
        assert async_engine.pool.checkedout() == 0  # type: ignore[attr-defined]  # a QueuePool

    async def test_its_last_pause_ends_with_its_time(
        self, outbox: Outbox, producer: Producer, database: Database, monkeypatch: Any
    ) -> None:
        event_id, now, slept = add(producer), [100.0], []

        def sleep(seconds: float) -> None:
            slept.append(seconds)
            now[0] += seconds

        monkeypatch.setattr(wait, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
        with pytest.raises(NotFinished):
            outbox.wait(database.engine, event_id, listener="billing", timeout=timedelta(seconds=3))

        assert sum(slept) == pytest.approx(3)
        assert (slept[0], max(slept)) == (wait.FIRST_PAUSE_SECONDS, wait.MAX_PAUSE_SECONDS)

    async def test_an_event_that_does_not_exist(
        self, outbox: Outbox, async_engine: AsyncEngine
    ) -> None:
        with pytest.raises(EventNotFound):
            await outbox.wait(async_engine, uuid4(), listener="billing")

    async def test_a_listener_that_nobody_declares(
        self, outbox: Outbox, database: Database
    ) -> None:
        with pytest.raises(ConfigError, match="no listener 'biling'; did you mean 'billing'"):
            outbox.wait(database.engine, uuid4(), listener="biling")

    async def test_a_listener_of_other_types(
        self, outbox: Outbox, producer: Producer, database: Database
    ) -> None:
        with producer.open() as session:
            event_id = session.add_event("user.left", {}).event_id

        with pytest.raises(ConfigError, match=r"'billing' does not listen to 'user\.left'"):
            outbox.wait(database.engine, event_id, listener="billing")

    async def test_a_session_or_connection_is_refused(
        self, outbox: Outbox, database: Database
    ) -> None:
        with (
            database.engine.connect() as connection,
            pytest.raises(WrongArgument, match="wait needs an engine, not Connection"),
        ):
            outbox.wait(connection, uuid4(), listener="billing")  # type: ignore[call-overload]

    @pytest.mark.parametrize("timeout", [timedelta(0), 5, None])
    async def test_a_timeout_that_is_none(
        self, outbox: Outbox, database: Database, timeout: Any
    ) -> None:
        with pytest.raises(ConfigError, match="timeout must be a timedelta"):
            outbox.wait(database.engine, uuid4(), listener="billing", timeout=timeout)

    async def test_an_event_that_is_gone_from_the_log(
        self, outbox: Outbox, producer: Producer, database: Database
    ) -> None:
        event_id = add(producer, idempotency_key="o-1")
        database.rows("DELETE FROM outbox")

        with pytest.raises(EventNotFound):
            outbox.wait(database.engine, event_id, listener="billing")

    async def test_an_event_of_which_only_what_another_listener_left_is_known(
        self, outbox: Outbox, producer: Producer, consuming: Consuming, database: Database
    ) -> None:
        @outbox.listener("exports", on="order.*", order="none")
        async def export(event: Event[Any]) -> None:
            event.leave_result("s3://1")

        event_id = add(producer)
        async with consuming(outbox) as running:
            await running.consumer.drain()
        database.rows("DELETE FROM outbox")

        status = outbox.wait(database.engine, event_id, listener="exports", timeout=SOON)
        assert status.result_ref == "s3://1"
        with pytest.raises(EventNotFound, match="'billing' has handled it is not known"):
            outbox.wait(database.engine, event_id, listener="billing", timeout=SOON)


class TestNoAnswer:
    """A query that is held up ends with the time of the wait."""

    @pytest.fixture(autouse=True)
    def billing(self, outbox: Outbox) -> None:
        @outbox.listener("billing", on="order.*")
        async def listen(event: Event[Any]) -> None: ...

    @pytest.fixture
    async def alone(self, async_engine: AsyncEngine) -> AsyncIterator[AsyncEngine]:
        """With one connection."""
        made = create_async_engine(async_engine.url, pool_size=1, max_overflow=0)
        yield made
        await made.dispose()

    async def test_from_a_pool_in_which_nothing_is_free(
        self, outbox: Outbox, producer: Producer, alone: AsyncEngine
    ) -> None:
        event_id = add(producer)

        async with alone.connect():
            with anyio.fail_after(IN_TIME), pytest.raises(NotFinished, match="the pool of") as no:
                await outbox.wait(alone, event_id, listener="billing", timeout=SOON)

        assert no.value.state == "unknown"
        with pytest.raises(NotFinished, match="it is pending"):
            await outbox.wait(alone, event_id, listener="billing", timeout=SOON)

    async def test_from_a_network_that_falls_silent(
        self, outbox: Outbox, producer: Producer, async_engine: AsyncEngine
    ) -> None:
        event_id = add(producer)
        with Proxy(async_engine.url) as network:
            network.open()
            engine = create_async_engine(async_engine.url.set(port=network.port))
            with pytest.raises(NotFinished, match="it is pending"):
                await outbox.wait(engine, event_id, listener="billing", timeout=SOON)
            network.best_effort()

            with anyio.fail_after(IN_TIME), pytest.raises(NotFinished, match="not answered"):
                await outbox.wait(engine, event_id, listener="billing", timeout=SOON)
            await engine.dispose()

    async def test_from_a_table_that_is_locked(
        self, outbox: Outbox, producer: Producer, database: Database, async_engine: AsyncEngine
    ) -> None:
        event_id = add(producer)

        async with database.locked("outbox_listeners"):
            with anyio.fail_after(IN_TIME), pytest.raises(NotFinished, match="not answered"):
                await outbox.wait(async_engine, event_id, listener="billing", timeout=SOON)
            with pytest.raises(NotFinished, match="not answered") as no:
                outbox.wait(database.engine, event_id, listener="billing", timeout=SOON)

        assert no.value.state == "unknown"

    async def test_after_an_answer_it_tells_what_that_was(
        self, outbox: Outbox, producer: Producer, alone: AsyncEngine
    ) -> None:
        event_id, looked, ended = add(producer), anyio.Event(), anyio.Event()
        events.listen(alone.sync_engine.pool, "checkin", lambda *_: looked.set())

        async def waiting() -> None:
            second = timedelta(seconds=1)
            with pytest.raises(NotFinished, match="it was pending before") as no:
                await outbox.wait(alone, event_id, listener="billing", timeout=second)
            assert no.value.state == "pending"
            ended.set()

        with anyio.fail_after(IN_TIME):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(waiting)
                await looked.wait()
                async with alone.connect():
                    await ended.wait()
