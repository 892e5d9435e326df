"""A lease that another consumer has taken: nothing more is written under it."""

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
    LeaseDropped,
)

from .conftest import Consuming, Database, Producer

pytestmark = pytest.mark.anyio

EFFECT = text("INSERT INTO effects VALUES ('billing', :n)")
TAKEN = """
UPDATE outbox_listeners SET locked_by = 'somebody else', lease_token = lease_token + 1,
    lease_expires_at = clock_timestamp() + interval '1 h'
"""


def listen(outbox: Outbox) -> list[int]:
    got: list[int] = []

    @outbox.listener("billing", on="order.*")
    async def charge(event: Event[Any], session: AsyncSession) -> None:
        await session.execute(EFFECT, {"n": event.payload["n"]})
        got.append(event.payload["n"])

    return got


async def test_nothing_more_is_written_and_the_effect_is_rolled_back(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    begun, hurry = anyio.Event(), anyio.Event()

    @outbox.listener("billing", on="order.*")
    async def charge(event: Event[Any], session: AsyncSession) -> None:
        await session.execute(EFFECT, {"n": event.payload["n"]})
        begun.set()
        await hurry.wait()

    producer.add(1)

    async with consuming(outbox) as running:
        await begun.wait()
        database.rows(TAKEN)
        hurry.set()
        [dropped] = await running.recorder.seen(LeaseDropped)

    assert (dropped.listener, dropped.token) == ("billing", 1)
    assert database.effects("billing") == []
    row = database.listener("billing")
    assert (row.last_processed_id, row.locked_by) == (0, "somebody else")


async def test_a_failure_is_not_written_either(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    begun, hurry = anyio.Event(), anyio.Event()

    @outbox.listener("billing", on="order.*")
    async def charge(event: Event[Any]) -> None:
        begun.set()
        await hurry.wait()
        raise ValueError("too late")

    producer.add(1, key="a")

    async with consuming(outbox) as running:
        await begun.wait()
        database.rows(TAKEN)
        hurry.set()
        await running.recorder.seen(LeaseDropped)

    assert database.deliveries("billing") == []
    assert database.listener("billing").last_processed_id == 0


async def test_the_handler_that_runs_is_cancelled_by_the_next_renewal(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    begun = anyio.Event()
    cancelled = False

    @outbox.listener("billing", on="order.*")
    async def charge(event: Event[Any], session: AsyncSession) -> None:
        nonlocal cancelled
        await session.execute(EFFECT, {"n": event.payload["n"]})
        begun.set()
        try:
            await anyio.sleep_forever()
        except BaseException:
            cancelled = True
            raise

    producer.add(1)

    async with consuming(outbox, lease_duration=timedelta(milliseconds=600)) as running:
        await begun.wait()
        database.rows(TAKEN)
        await running.recorder.seen(LeaseDropped)

    assert cancelled
    assert database.effects("billing") == []


async def test_it_is_claimed_again_when_it_is_free(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    got = listen(outbox)

    async with consuming(
        outbox,
        lease_duration=timedelta(milliseconds=600),
        poll_interval=timedelta(milliseconds=100),
    ) as running:
        database.rows(TAKEN)
        await running.recorder.seen(LeaseDropped)
        database.rows("UPDATE outbox_listeners SET locked_by = NULL, lease_expires_at = NULL")
        await running.recorder.seen(LeaseClaimed, times=2)
        producer.add(1)
        await running.done("billing")

    assert got == [1]
