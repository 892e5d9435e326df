"""What people do to listeners, and what they are told about them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import anyio
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from sa_outbox import Event, Outbox
from sa_outbox.observe import (
    LeaseClaimed,
    LeaseReleased,
    ListenerChanged,
    ListenerOrphaned,
)
from tests.support import PATIENCE

from .conftest import Consuming, Database, Producer

pytestmark = [pytest.mark.anyio, pytest.mark.woken_by("poll")]

EFFECT = text("INSERT INTO effects VALUES ('billing', :n)")


def listen(outbox: Outbox) -> list[int]:
    got: list[int] = []

    @outbox.listener("billing", on="order.*")
    async def charge(event: Event[Any], session: AsyncSession) -> None:
        await session.execute(EFFECT, {"n": event.payload["n"]})
        got.append(event.payload["n"])

    return got


async def test_a_paused_listener_stops_at_the_next_renewal_and_goes_on_when_it_is_not(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    got = listen(outbox)

    async with consuming(
        outbox,
        lease_duration=timedelta(milliseconds=600),
        poll_interval=timedelta(milliseconds=100),
    ) as running:
        producer.add(1)
        await running.done("billing")
        database.rows("UPDATE outbox_listeners SET paused_at = clock_timestamp()")
        await running.recorder.seen(LeaseReleased)
        producer.add(2)
        assert got == [1]
        database.rows("UPDATE outbox_listeners SET paused_at = NULL")
        await running.done("billing", 2)

    assert got == [1, 2]


async def test_a_paused_listener_is_not_claimed(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    listen(outbox)
    async with consuming(outbox):
        pass
    database.rows("UPDATE outbox_listeners SET paused_at = clock_timestamp()")

    async with consuming(outbox) as running:
        assert running.recorder.of(LeaseClaimed) == []


async def test_drain_does_not_wait_for_a_paused_listener(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    listen(outbox)
    async with consuming(outbox):
        pass
    database.rows("UPDATE outbox_listeners SET paused_at = clock_timestamp()")
    producer.add(1)

    async with consuming(outbox) as running:
        with anyio.fail_after(PATIENCE):
            await running.consumer.drain()


async def test_a_listener_nobody_declares_any_more_is_told_of(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    listen(outbox)
    producer.add(1, 2, 3)
    database.rows("INSERT INTO outbox_listeners (name, last_processed_id) VALUES ('old', 2)")

    async with consuming(outbox) as running:
        assert running.recorder.of(ListenerOrphaned) == [ListenerOrphaned("old", 2)]


async def test_a_listener_of_another_consumer_of_the_program_is_no_orphan(
    outbox: Outbox, producer: Producer, consuming: Consuming
) -> None:
    listen(outbox)

    @outbox.listener("mail", on="order.*")
    async def write(event: Event[Any]) -> None: ...

    async with consuming(outbox):
        pass
    async with consuming(outbox, listeners=["mail"]) as running:
        assert running.recorder.of(ListenerOrphaned) == []


async def test_a_listener_that_is_declared_otherwise_is_told_of_once(
    outbox: Outbox, producer: Producer, consuming: Consuming, notify: Any
) -> None:
    listen(outbox)
    async with consuming(outbox) as running:
        assert running.recorder.of(ListenerChanged) == []

    changed = Outbox(notify=notify)

    @changed.listener("billing", on="order.*", order="total")
    async def charge(event: Event[Any]) -> None: ...

    async with consuming(changed) as first:
        pass
    async with consuming(changed) as second:
        pass

    assert first.recorder.of(ListenerChanged) == [ListenerChanged("billing")]
    assert second.recorder.of(ListenerChanged) == []
