"""One consumer at a time works for a listener; after it, another one does."""

from __future__ import annotations

from datetime import timedelta
from itertools import count
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from sa_outbox import Event, Outbox
from sa_outbox.consumer import runner
from sa_outbox.consumer.lease.lease import Lease
from sa_outbox.consumer.services import lease_coordinator
from sa_outbox.consumer.services.lease_coordinator import LeaseCoordinator
from sa_outbox.observe import (
    BatchRead,
    CaughtUp,
    LeaseClaimed,
    LeaseReleased,
    Listening,
    Notified,
    Observation,
)
from tests.support import comes_true

from .conftest import Consuming, Database, Producer, make_consumer

pytestmark = pytest.mark.anyio

EFFECT = text("INSERT INTO effects VALUES ('billing', :n)")


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
    outbox: Outbox,
    producer: Producer,
    consuming: Consuming,
    notify: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lease_coordinator, "OVERDUE_SECONDS", 1000.0)  # and not because it is late
    got = listen(outbox)

    async with consuming(outbox) as first, consuming(outbox) as second:
        if notify == "on":
            await second.recorder.seen(Listening)
        producer.add(1)
        await first.done("billing")
        await first.stop()
        [claimed] = await second.recorder.seen(LeaseClaimed)
        producer.add(2)
        await second.done("billing")

    assert got == [1, 2]
    # Once, or again while it stopped, and given back: each claim is a term, and nobody else's.
    claims = len(first.recorder.of(LeaseClaimed))
    assert (claimed.token, claimed.position, claimed.after_crash) == (claims + 1, 1, False)


@pytest.mark.woken_by("notify")
async def test_the_second_takes_over_when_the_first_is_counted_no_longer_only_after_its_release(
    outbox: Outbox,
    producer: Producer,
    consuming: Consuming,
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both are under way at once. A survey in between leaves what is free to the first."""
    monkeypatch.setattr(lease_coordinator, "OVERDUE_SECONDS", 1000.0)
    listen(outbox)
    surveys, survey = [], LeaseCoordinator.claim

    async def claim(leases: LeaseCoordinator) -> list[Lease]:
        claimed = await survey(leases)
        surveys.append(leases.owner)
        return claimed

    monkeypatch.setattr(LeaseCoordinator, "claim", claim)
    # The one that came first comes first by its name too.
    numbers = (str(each) for each in count())
    monkeypatch.setattr(runner, "secrets", SimpleNamespace(token_hex=lambda _: next(numbers)))
    never = {"poll_interval": timedelta(hours=1), "lease_duration": timedelta(hours=1)}
    async with consuming(outbox, **never) as first, consuming(outbox, **never) as second:
        await second.recorder.seen(Listening)
        producer.add(1)
        await first.done("billing")
        second.recorder.forget()
        with database.engine.begin() as connection:
            connection.execute(text("SELECT FROM outbox_consumers FOR UPDATE"))
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(first.stop)
                surveys.clear()
                await second.recorder.seen(Notified, of="released")
                await comes_true(lambda: second.consumer.owner in surveys)
                connection.rollback()
        await second.recorder.seen(LeaseClaimed)


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
