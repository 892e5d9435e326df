"""Handlers that take too long."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any
from uuid import UUID

import anyio
import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from sa_outbox import Event, Outbox
from sa_outbox.consumer.handler import deadline
from sa_outbox.observe import AttemptFailed, ConsumerStopping, DeliverySettled, HandlerIgnoredCancel
from tests.support import comes_true

from .conftest import LATER, ONCE, QUICK, Consuming, Database, Producer

pytestmark = [pytest.mark.anyio, pytest.mark.woken_by("poll")]

SHORT = timedelta(milliseconds=50)
EFFECT = text("INSERT INTO effects VALUES ('billing', :n)")


@pytest.mark.parametrize("with_session", [False, True], ids=["plain", "session"])
async def test_a_handler_that_takes_too_long_is_cancelled_and_has_failed(
    with_session: bool,
    outbox: Outbox,
    producer: Producer,
    database: Database,
    consuming: Consuming,
) -> None:
    async def charge(event: Event[Any]) -> None:
        if event.payload["n"] == 1:
            await anyio.sleep_forever()

    async def charge_in_session(event: Event[Any], session: AsyncSession) -> None:
        await session.execute(EFFECT, {"n": event.payload["n"]})
        await charge(event)

    listener = outbox.listener("billing", on="order.*", retry=ONCE, timeout=SHORT)
    listener(charge_in_session if with_session else charge)
    producer.add(1, 2)

    async with consuming(outbox) as running:
        await running.dead("billing")
        await running.done("billing")

    [dead] = database.dead_letters("billing")
    assert dead.errors[0]["code"] == "handler-timeout"
    assert database.effects("billing") == ([2] if with_session else [])


async def test_every_attempt_has_the_same_time(
    outbox: Outbox, producer: Producer, consuming: Consuming
) -> None:
    @outbox.listener("billing", on="order.*", retry=QUICK, timeout=SHORT)
    async def charge(event: Event[Any]) -> None:
        await anyio.sleep_forever()

    producer.add(1)

    async with consuming(outbox) as running:
        await running.dead("billing")

    took = [each.seconds for each in running.recorder.of(DeliverySettled)]
    assert max(took) < 1


async def test_a_handler_in_time_is_left_alone(
    outbox: Outbox, producer: Producer, consuming: Consuming
) -> None:
    """The time is that of one call, however many of them follow each other."""

    @outbox.listener("billing", on="order.*", timeout=timedelta(milliseconds=200))
    async def charge(event: Event[Any]) -> None:
        with anyio.move_on_after(0.03):
            await anyio.sleep_forever()

    producer.add(*range(15))

    async with consuming(outbox) as running:
        await running.done("billing", 15)

    assert running.recorder.of(AttemptFailed) == []


async def test_a_sync_handler_that_takes_too_long_is_left_behind_and_has_failed(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    release = threading.Event()

    @outbox.listener("billing", on="order.*", retry=ONCE, timeout=SHORT)
    def charge(event: Event[Any]) -> None:
        if event.payload["n"] == 1:
            release.wait(10)

    producer.add(1, 2)

    try:
        async with consuming(outbox) as running:
            await running.dead("billing")
            await running.done("billing")
    finally:
        release.set()

    assert database.dead_letters("billing")[0].errors[0]["code"] == "handler-timeout"


async def test_what_a_sync_handler_does_after_its_time_is_never_committed(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    release, ended = threading.Event(), threading.Event()
    refused: list[DBAPIError] = []

    @outbox.listener("billing", on="order.*", retry=ONCE, timeout=SHORT)
    def charge(event: Event[Any], session: Session) -> None:
        session.execute(EFFECT, {"n": 1})
        release.wait(10)
        try:
            session.execute(EFFECT, {"n": 2})
        except DBAPIError as error:
            refused.append(error)
        ended.set()

    producer.add(1)

    async with consuming(outbox) as running:
        await running.dead("billing")
        # Its locks are gone while it runs still: others may wait for them.
        await comes_true(lambda: database.idle_in_transaction() == [])
        release.set()
        await comes_true(ended.is_set)

    assert database.effects("billing") == []
    assert len(refused) == 1


async def test_a_sync_handler_that_is_cut_off_by_the_end_of_the_grace_period_has_no_effect(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    begun, release, ended = threading.Event(), threading.Event(), threading.Event()

    @outbox.listener("billing", on="order.*", retry=ONCE)
    def charge(event: Event[Any], session: Session) -> None:
        try:
            session.execute(EFFECT, {"n": 1})
            begun.set()
            release.wait(10)
            session.execute(EFFECT, {"n": 2})
            session.commit()
        finally:
            ended.set()

    producer.add(1)

    async with consuming(outbox, grace_period=timedelta(milliseconds=50)) as running:
        await comes_true(begun.is_set)
        await running.stop()
        release.set()
        await comes_true(ended.is_set)

    await comes_true(lambda: database.idle_in_transaction() == [])
    assert database.effects("billing") == []
    assert database.listener("billing").last_processed_id == 0


NESTED = "('{\"x\": ' || repeat('[', 3000) || repeat(']', 3000) || '}')::jsonb"
"""Headers that Python can't decode, and that are not decoded unless somebody asks for them."""


@pytest.mark.parametrize(
    ("headers", "known"),
    [("""'{"request_id": "r-1"}'""", {"request_id": "r-1"}), (NESTED, {})],
    ids=["of ours", "that can't be decoded"],
)
async def test_a_handler_that_ignores_its_cancellation_stops_the_consumer(
    outbox: Outbox,
    database: Database,
    consuming: Consuming,
    monkeypatch: pytest.MonkeyPatch,
    headers: str,
    known: dict[str, str],
) -> None:
    monkeypatch.setattr(deadline, "STUCK_AFTER_SECONDS", 0.05)
    enough = anyio.Event()
    seen: set[UUID] = set()

    @outbox.listener("billing", on="order.*", retry=LATER, timeout=SHORT)
    async def charge(event: Event[Any]) -> None:
        seen.add(event.event_id)
        while not enough.is_set():
            try:
                await enough.wait()
            except BaseException:  # noqa: BLE001 - the subject of this test
                continue

    database.write_raw(event_type="'order.placed'", tenant="'acme'", headers=headers)

    async with consuming(outbox) as running:
        [told] = await running.recorder.seen(HandlerIgnoredCancel)
        [stopping] = await running.recorder.seen(ConsumerStopping)
        enough.set()
        await running.stopped.wait()

    assert (told.listener, told.position, told.attempt) == ("billing", 1, 1)
    assert (told.event_id, told.event_type) == (*seen, "order.placed")
    assert told.origin.known == {"tenant": "acme", **known}
    assert "ignored its cancellation" in stopping.reason
