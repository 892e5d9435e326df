"""Ranges of a queue whose leases are over, though their holder does not know it yet."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import anyio
import pytest
from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncSession

from sa_outbox import Event, Outbox
from sa_outbox.consumer.connection.connections import Asked, Connection
from sa_outbox.consumer.queue.claim import RangeClaimer
from sa_outbox.consumer.queue.selection import Again, ClaimedRange, Selection
from sa_outbox.consumer.queue.urgency import Chooser
from sa_outbox.consumer.transaction.lent_session import LentSession
from sa_outbox.observe import LeaseDropped
from sa_outbox.sql.queue import claims
from tests.support import comes_true

from .conftest import Consuming, Database, Producer

pytestmark = pytest.mark.anyio


async def test_a_process_does_not_claim_a_range_that_it_is_working_on(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    began: list[int] = []
    go_on = anyio.Event()

    @outbox.listener("mailer", on="order.*", order="none", concurrency=4)
    async def mail(event: Event[Any]) -> None:
        began.append(event.payload["n"])
        if event.payload["n"] == 1:
            await go_on.wait()

    producer.add(1)
    async with consuming(outbox) as running:
        await comes_true(lambda: began == [1])
        [first] = database.rows("SELECT lease_token FROM outbox_ranges")
        # As after a sleep; and another process has given a range back.
        database.rows("UPDATE outbox_ranges SET lease_expires_at = clock_timestamp()")
        database.rows(
            "INSERT INTO outbox_ranges (listener, last_processed_id, gaps)"
            " VALUES ('mailer', 1000, '[[1000,1000]]')"
        )
        producer.add(2)
        await comes_true(lambda: 2 in began)
        left = "SELECT FROM outbox_ranges WHERE last_processed_id = 1000"
        await comes_true(lambda: database.rows(left) == [])  # it has nothing in the log
        [held] = database.rows("SELECT lease_token FROM outbox_ranges WHERE gaps = '[[1, 1]]'")
        go_on.set()
        await running.done("mailer", 2)

    assert (began, held.lease_token) == ([1, 2], first.lease_token)
    assert database.rows("SELECT FROM outbox_ranges") == []


async def test_a_range_that_is_all_settled_is_not_taken_for_lost_by_a_renewal(
    outbox: Outbox,
    producer: Producer,
    database: Database,
    consuming: Consuming,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its row is deleted with the last effect, and the session is closed after that."""
    renewed = 0
    close = LentSession.close

    @outbox.listener("mailer", on="order.*", order="none")
    async def mail(event: Event[Any], session: AsyncSession) -> None:
        pass

    async with consuming(outbox) as running:

        async def renew_and_close(session: LentSession) -> None:
            nonlocal renewed
            services = running.consumer._services
            assert services is not None
            await services.memory.compare()
            renewed += 1
            await close(session)

        monkeypatch.setattr(LentSession, "close", renew_and_close)
        producer.add(1)
        await running.done("mailer")

    assert renewed == 1
    assert running.recorder.of(LeaseDropped) == []
    assert database.rows("SELECT FROM outbox_ranges") == []


async def test_two_processes_that_read_the_same_events_do_not_both_take_them(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    """Whoever comes second finds another revision, and takes nothing."""

    @outbox.listener("mailer", on="order.*", order="none")
    async def mail(event: Event[Any]) -> None:
        raise NotImplementedError

    async with consuming(outbox) as running:
        await running.consumer.drain()
    producer.add(1)
    revision = database.listener("mailer").revision
    values = {"name": "mailer", "duration": 30.0, "revision": revision, "position": 1}
    values |= {"gaps": "[]", "upper": 1, "taken": "[[1, 1]]", "durable": True}
    take = claims.take(outbox.tables)
    with database.engine.begin() as connection:
        first = connection.execute(take, {**values, "owner": "one"}).all()
        second = connection.execute(take, {**values, "owner": "other"}).all()

    assert (len(first), second) == (1, [])
    assert [row.locked_by for row in database.rows("SELECT * FROM outbox_ranges")] == ["one"]


async def test_what_was_read_after_a_look_that_is_forgotten_is_not_said_to_be_read(
    engine: Engine, database: Database, consuming: Consuming, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reconnect between the look and the read under the lock: ``drain`` would end too early."""
    outbox = Outbox(notify="off")

    @outbox.listener("mailer", on="order.*", order="none")
    async def mail(event: Event[Any]) -> None:
        raise NotImplementedError

    choose, new = Chooser.choose, RangeClaimer._new
    forgotten, tried = anyio.Event(), anyio.Event()

    async def forget_and_choose(
        chooser: Chooser, asked: Asked, row: Any, size: int, *, aside: bool
    ) -> Selection:
        if isinstance(asked, Connection) and not forgotten.is_set():
            context.horizon.forget()
            forgotten.set()
        return await choose(chooser, asked, row, size, aside=aside)

    async def noting_new(taker: RangeClaimer, state: Any, size: int) -> ClaimedRange | Again | None:
        taken = await new(taker, state, size)
        if forgotten.is_set():
            tried.set()
        return taken

    hour = timedelta(hours=1)
    async with consuming(outbox, poll_interval_without_notify=hour) as running:
        await running.consumer.drain()
        services = running.consumer._services
        assert services is not None
        context, [queue] = services.context, services.workload.queues
        monkeypatch.setattr(Chooser, "choose", forget_and_choose)
        monkeypatch.setattr(RangeClaimer, "_new", noting_new)
        Producer(outbox, engine).add(1, delay=hour)
        looked = context.horizon.number + 1
        context.bell.ring("poll")
        await tried.wait()
        assert not queue.has_read(looked)
        assert database.deliveries("mailer") == []

        await running.consumer.drain()
        assert [row.state for row in database.deliveries("mailer")] == ["scheduled"]
