"""Connections that end in the middle of the writes that settle: each is there once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import pytest
from sqlalchemy import Connection, event, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from sa_outbox import Event, Outbox
from sa_outbox.observe import AttemptFailed, DeliverySettled
from tests.support import comes_true

from .conftest import ONCE, QUICK, Consuming, Database, Producer

pytestmark = pytest.mark.anyio

EFFECT = text("INSERT INTO effects VALUES ('billing', :n)")
END = text("SELECT pg_terminate_backend(:pid, 5000)")


@pytest.fixture
async def before_commit(
    async_engine: AsyncEngine,
) -> AsyncIterator[list[Callable[[Connection], None]]]:
    """Functions that are called, the last one first and once each, just before a handler's COMMIT
    is sent; None among them lets one pass."""
    waiting: list[Any] = []

    def act(connection: Connection) -> None:
        if "isolation_level" not in connection.get_execution_options():
            return  # of the consumer, which verifies on this engine too
        if waiting and (function := waiting.pop()) is not None:
            function(connection)

    event.listen(async_engine.sync_engine, "commit", act)
    yield waiting
    event.remove(async_engine.sync_engine, "commit", act)


class TestInTheCommit:
    async def test_a_connection_that_ends_before_the_commit_arrives_had_no_effect(
        self,
        outbox: Outbox,
        producer: Producer,
        database: Database,
        consuming: Consuming,
        before_commit: list[Callable[[Connection], None]],
    ) -> None:
        calls: list[int] = []

        @outbox.listener("billing", on="order.*", retry=ONCE)
        async def charge(event: Event[Any], session: AsyncSession) -> None:
            calls.append(event.payload["n"])
            await session.execute(EFFECT, {"n": event.payload["n"]})

        before_commit.append(database.end_backend_of)
        producer.add(1)

        async with consuming(outbox) as running:
            await running.done("billing")

        assert calls == [1, 1]
        assert database.effects("billing") == [1]

    async def test_a_connection_that_ends_after_the_commit_had_its_effect(
        self,
        outbox: Outbox,
        producer: Producer,
        database: Database,
        consuming: Consuming,
        before_commit: list[Callable[[Connection], None]],
    ) -> None:
        """The answer is what is lost: the row tells, and the handler does not run again."""
        calls: list[int] = []

        @outbox.listener("billing", on="order.*", retry=ONCE)
        async def charge(event: Event[Any], session: AsyncSession) -> None:
            calls.append(event.payload["n"])
            await session.execute(EFFECT, {"n": event.payload["n"]})

        def commit_and_end(connection: Connection) -> None:
            connection.exec_driver_sql("COMMIT")
            database.end_backend_of(connection)

        async with consuming(outbox) as running:
            before_commit.append(commit_and_end)
            producer.add(1, 2)
            await running.done("billing", 2)

        assert calls == [1, 2]
        assert database.effects("billing") == [1, 2]

    async def test_a_parked_delivery_whose_commit_did_not_arrive_is_still_before_its_key(
        self,
        outbox: Outbox,
        producer: Producer,
        database: Database,
        consuming: Consuming,
        before_commit: list[Callable[[Connection], None]],
    ) -> None:
        """It moves no cursor, so the cursor does not tell what became of it."""
        calls: list[int] = []

        @outbox.listener("billing", on="order.*", retry=QUICK, group_commit=False)
        async def charge(event: Event[Any], session: AsyncSession) -> None:
            calls.append(event.payload["n"])
            await session.execute(EFFECT, {"n": event.payload["n"]})
            if len(calls) == 1:
                before_commit.append(database.end_backend_of)
                raise ValueError("at first")

        producer.add(1, 2, key="a")

        async with consuming(outbox) as running:
            await running.settled("billing", position=2)
            await running.consumer.drain()

        assert calls == [1, 1, 1, 2]
        assert database.effects("billing") == [1, 2]
        done = running.recorder.of(DeliverySettled, outcome="done")
        assert [each.position for each in done] == [1, 2]


class TestInTheSettling:
    """The statements that settle are cut off; afterwards they are there, once."""

    async def test_a_failure_of_order_total_is_counted_once(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        @outbox.listener("billing", on="order.*", order="total", retry=QUICK)
        async def charge(event: Event[Any]) -> None:
            raise ValueError("always")

        async with consuming(outbox) as running:
            await running.listening()
            async with database.locked("outbox_listeners"):
                producer.add(1)
                await running.recorder.seen(AttemptFailed)
                await comes_true(database.waiting_backends)
                database.end_consumer_backends()
            await running.dead("billing")

        [dead] = database.dead_letters("billing")
        assert [each["attempt"] for each in dead.errors] == [1, 2, 3]

    async def test_a_failure_of_a_parked_delivery_is_counted_once(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        go = anyio.Event()
        calls: list[int] = []

        @outbox.listener("billing", on="order.*", retry=QUICK)
        async def charge(event: Event[Any]) -> None:
            calls.append(1)
            if len(calls) == 2:
                await go.wait()
            raise ValueError("always")

        async with consuming(outbox) as running:
            producer.add(1, key="a")
            await comes_true(lambda: len(calls) == 2)
            async with database.locked("outbox_deliveries"):
                go.set()
                await running.recorder.seen(AttemptFailed, attempt=2)
                await comes_true(database.waiting_backends)
                database.end_consumer_backends()
            await running.dead("billing")

        [dead] = database.dead_letters("billing")
        assert [each["attempt"] for each in dead.errors] == [1, 2, 3]
        assert len(calls) == 3

    @pytest.mark.woken_by("poll")
    async def test_an_attempt_that_ended_while_a_read_was_cut_off_is_not_made_again(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        """The loop is asking what is due when its connection ends: the outcome is not written yet,
        and must not be forgotten with the loop."""
        go = anyio.Event()
        calls: list[int] = []

        @outbox.listener("billing", on="order.*", retry=QUICK)
        async def charge(event: Event[Any]) -> None:
            calls.append(1)
            if len(calls) == 2:
                await go.wait()
            raise ValueError("always")

        async with consuming(outbox) as running:
            producer.add(1, key="a")
            await comes_true(lambda: len(calls) == 2)
            async with database.locked("outbox_deliveries"):
                await comes_true(database.waiting_backends)
                go.set()
                await running.recorder.seen(AttemptFailed, attempt=2)
                database.end_consumer_backends()
            await running.dead("billing")

        [dead] = database.dead_letters("billing")
        assert [each["attempt"] for each in dead.errors] == [1, 2, 3]
        assert len(calls) == 3

    async def test_a_dead_letter_is_written_once(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        @outbox.listener("billing", on="order.*", retry=ONCE)
        async def charge(event: Event[Any]) -> None:
            raise ValueError("always")

        async with consuming(outbox) as running:
            await running.listening()
            async with database.locked("outbox_dead_letters"):
                producer.add(1)
                await running.recorder.seen(AttemptFailed)
                await comes_true(database.waiting_backends)
                database.end_consumer_backends()
            await running.dead("billing")

        assert len(database.dead_letters("billing")) == 1
