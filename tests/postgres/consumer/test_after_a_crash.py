"""A lease that expired: whoever takes it over is careful, for an event may have done it."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from sa_outbox import Event, Outbox
from sa_outbox.observe import DeliverySettled, LeaseClaimed, SuspectAttempted

from .conftest import Consuming, Database, Producer

pytestmark = pytest.mark.anyio

EFFECT = text("INSERT INTO effects VALUES ('billing', :n)")
DIED = """
UPDATE outbox_listeners SET locked_by = 'somebody who died', lease_token = lease_token + 1,
    lease_expires_at = clock_timestamp() - interval '1 s'
"""
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


async def test_an_expired_lease_is_taken_over(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    got = listen(outbox)
    async with consuming(outbox):
        pass
    producer.add(1)
    database.rows(DIED)

    async with consuming(outbox) as running:
        [claimed] = await running.recorder.seen(LeaseClaimed)
        await running.done("billing")

    assert (claimed.token, claimed.after_crash) == (3, True)
    assert got == [1]


async def test_a_lease_that_expires_while_somebody_waits_is_taken_over_then(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    got = listen(outbox)
    async with consuming(outbox):
        pass
    producer.add(1)
    database.rows(TAKEN)
    expires_at = database.value(
        "UPDATE outbox_listeners SET lease_expires_at = clock_timestamp() + interval '300 ms'"
        " RETURNING lease_expires_at"
    )

    async with consuming(outbox) as running:
        await running.recorder.seen(LeaseClaimed)
        then = database.value("SELECT clock_timestamp()")
        await running.done("billing")

    assert then > expires_at
    assert got == [1]


async def test_what_was_in_flight_among_few_goes_one_by_one_and_alone(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    inside = most = 0

    @outbox.listener("billing", on="order.*", concurrency=4)
    async def charge(event: Event[Any], session: AsyncSession) -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await session.execute(EFFECT, {"n": event.payload["n"]})
        inside -= 1

    async with consuming(outbox):
        pass
    producer.add(*range(10), headers={"request_id": "r-1"})
    database.rows(DIED)
    database.rows("""UPDATE outbox_listeners SET crashes = 1, suspects = '{"3": [], "10": []}'""")

    async with consuming(outbox) as running:
        await running.done("billing", 10)

    assert most == 1
    attempted = running.recorder.of(SuspectAttempted)
    assert [each.position for each in attempted] == list(range(1, 11))
    assert {(each.event_type, each.attempt) for each in attempted} == {("order.placed", 1)}
    settled = running.recorder.of(DeliverySettled)
    assert [each.event_id for each in attempted] == [each.event_id for each in settled]
    assert {each.origin.known["request_id"] for each in attempted} == {"r-1"}
    assert database.listener("billing").suspects == {}
    assert database.effects("billing") == list(range(10))


async def test_crashes_are_forgotten_when_everything_is_settled(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    listen(outbox)
    async with consuming(outbox):
        pass
    producer.add(*range(3))
    database.rows(DIED)
    database.rows("UPDATE outbox_listeners SET crashes = 2")

    async with consuming(outbox) as running:
        await running.done("billing", 3)
        await running.consumer.drain()

    assert database.listener("billing").crashes == 0


async def test_an_event_that_was_alone_at_every_crash_becomes_a_dead_letter(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    got = listen(outbox)
    async with consuming(outbox):
        pass
    producer.add(1, 2)
    database.rows(DIED)
    database.rows(
        """UPDATE outbox_listeners SET crashes = 4, suspects = '{"1": ["7", "8", "9"]}'"""
    )

    async with consuming(outbox, max_crashes=3) as running:
        await running.dead("billing")
        await running.done("billing")

    [dead] = database.dead_letters("billing")
    assert (dead.position, dead.reason, dead.crashes) == (1, "crashes", 3)
    assert got == [2]
