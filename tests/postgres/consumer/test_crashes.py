"""Handlers that want the process to end."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import anyio
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from sa_outbox import Event, Outbox
from sa_outbox.observe import AttemptFailed, ConsumerStopping, DeadLettered

from .conftest import Consuming, Database, Producer

pytestmark = pytest.mark.anyio

BOTH = pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])


def listen(outbox: Outbox, error: type[BaseException], *, is_async: bool) -> list[int]:
    calls: list[int] = []

    def charge(event: Event[Any]) -> None:
        calls.append(event.payload["n"])
        if event.payload["n"] == 2:
            raise error

    async def charge_async(event: Event[Any]) -> None:
        charge(event)

    outbox.listener("billing", on="order.*")(charge_async if is_async else charge)
    return calls


@BOTH
async def test_system_exit_stops_the_consumer_in_good_order(
    is_async: bool, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    listen(outbox, SystemExit, is_async=is_async)
    producer.add(1, 2, 3, key="a")

    async with consuming(outbox) as running:
        await running.stopped.wait()

    assert "SystemExit" in running.consumer.reason
    row = database.listener("billing")
    assert (row.last_processed_id, row.suspects) == (1, {"2": [str(row.lease_token)]})
    assert running.recorder.of(AttemptFailed) == []


@BOTH
async def test_an_event_that_exits_again_and_again_becomes_a_dead_letter(
    is_async: bool, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    calls = listen(outbox, SystemExit, is_async=is_async)
    producer.add(1, 2, 3, key="a")

    for _ in range(3):
        async with consuming(outbox, max_crashes=3) as running:
            await running.stopped.wait()
    async with consuming(outbox, max_crashes=3) as running:
        await running.done("billing")

    [dead] = database.dead_letters("billing")
    assert (dead.position, dead.reason, dead.crashes) == (2, "crashes", 3)
    assert dead.errors[-1]["code"] == "crash"
    assert calls == [1, 2, 2, 2, 3]


async def test_an_exit_leaves_no_effect(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    @outbox.listener("billing", on="order.*")
    async def charge(event: Event[Any], session: AsyncSession) -> None:
        await session.execute(text("INSERT INTO effects VALUES ('billing', 1)"))
        sys.exit(3)

    producer.add(1)

    async with consuming(outbox) as running:
        await running.stopped.wait()

    assert database.effects("billing") == []
    assert "SystemExit(3)" in running.recorder.of(ConsumerStopping)[0].reason


async def test_an_exit_in_a_batch_blames_only_the_event_that_exits_alone(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    done: list[int] = []

    @outbox.listener("billing", on="order.*")
    async def charge(events: Sequence[Event[Any]]) -> None:
        if any(event.payload["n"] == 2 for event in events):
            raise SystemExit
        done.extend(event.payload["n"] for event in events)

    producer.add(1, 2, 3)

    for _ in range(2):
        async with consuming(outbox, max_crashes=2) as running:
            await running.stopped.wait()
    async with consuming(outbox, max_crashes=2) as running:
        await running.consumer.drain()

    assert [each.position for each in database.dead_letters("billing")] == [2]
    assert sorted(done) == [1, 3]


@BOTH
async def test_keyboard_interrupt_stops_the_consumer_and_counts_nothing(
    is_async: bool, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    calls = listen(outbox, KeyboardInterrupt, is_async=is_async)
    producer.add(1, 2, 3, key="a")

    for _ in range(5):
        async with consuming(outbox) as running:
            await running.stopped.wait()

    assert "KeyboardInterrupt" in running.consumer.reason
    row = database.listener("billing")
    assert (row.last_processed_id, row.suspects, row.retry_count) == (1, {}, 0)
    assert database.deliveries("billing") == []
    assert running.recorder.of(DeadLettered) == []
    assert calls == [1, 2, 2, 2, 2, 2]


async def test_other_listeners_finish_what_they_have_in_hand_before_the_exit(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    begun = anyio.Event()

    @outbox.listener("billing", on="order.*")
    async def charge(event: Event[Any]) -> None:
        await begun.wait()
        raise SystemExit

    @outbox.listener("mail", on="order.*")
    async def write(event: Event[Any], session: AsyncSession) -> None:
        begun.set()
        for _ in range(20):
            await session.execute(text("SELECT 1"))
        await session.execute(text("INSERT INTO effects VALUES ('mail', 1)"))

    producer.add(1)

    async with consuming(outbox) as running:
        await running.stopped.wait()

    assert database.effects("mail") == [1]
