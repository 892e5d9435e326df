"""order="total": a failing event holds its own listener's cursor, with its state in the row."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from sa_outbox import Event, Outbox
from sa_outbox.observe import DatabaseBack, Place
from tests.support import comes_true

from .conftest import LATER, QUICK, Consuming, Database, Producer

pytestmark = pytest.mark.anyio

NOW = "UPDATE outbox_listeners SET retry_after = clock_timestamp()"
WITH_SESSION = pytest.mark.parametrize("with_session", [False, True], ids=["plain", "session"])


def listen(outbox: Outbox, retry: Any, *, bad: set[int], with_session: bool) -> list[int]:
    attempts: list[int] = []

    async def charge(event: Event[Any]) -> None:
        attempts.append(event.payload["n"])
        if event.payload["n"] in bad:
            raise ValueError(f"error {len(attempts)}")

    async def charge_in_session(event: Event[Any], session: AsyncSession) -> None:
        await charge(event)

    listener = outbox.listener("billing", on="order.*", order="total", retry=retry)
    listener(charge_in_session if with_session else charge)
    return attempts


@WITH_SESSION
async def test_the_cursor_stands_before_the_event_and_its_row_holds_the_state(
    with_session: bool,
    outbox: Outbox,
    producer: Producer,
    database: Database,
    consuming: Consuming,
) -> None:
    attempts = listen(outbox, LATER, bad={3}, with_session=with_session)
    producer.add(1, 2, 3, 4)

    async with consuming(outbox) as running:
        await running.settled("billing", outcome="retry")
        row = database.listener("billing")

    assert attempts == [1, 2, 3]
    assert (row.last_processed_id, row.retry_position, row.retry_count) == (2, 3, 1)
    assert (row.last_error_code, row.last_error) == ("ValueError", "error 3")
    assert [each["message"] for each in row.errors] == ["error 3"]
    assert database.deliveries("billing") == []


@WITH_SESSION
async def test_after_the_dead_letter_it_goes_on(
    with_session: bool,
    outbox: Outbox,
    producer: Producer,
    database: Database,
    consuming: Consuming,
) -> None:
    attempts = listen(outbox, QUICK, bad={2}, with_session=with_session)
    producer.add(1, 2, 3)

    async with consuming(outbox) as running:
        await running.done("billing", 2)

    assert attempts == [1, 2, 2, 2, 3]
    row = database.listener("billing")
    assert (row.last_processed_id, row.retry_count, row.retry_position, row.errors) == (
        3,
        0,
        None,
        [],
    )


async def test_two_events_that_fail_have_their_own_errors(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    listen(outbox, QUICK, bad={1, 2}, with_session=False)
    producer.add(1, 2, 3)

    async with consuming(outbox) as running:
        await running.done("billing")

    assert [
        [each["message"] for each in dead.errors] for dead in database.dead_letters("billing")
    ] == [["error 1", "error 2", "error 3"], ["error 4", "error 5", "error 6"]]


async def test_a_restart_does_not_shorten_the_wait(
    outbox: Outbox, producer: Producer, consuming: Consuming
) -> None:
    attempts = listen(outbox, LATER, bad={1}, with_session=False)
    producer.add(1)

    async with consuming(outbox) as running:
        await running.settled("billing", outcome="retry")
    async with consuming(outbox) as running:
        await running.consumer.drain(retries=False)

    assert attempts == [1]


async def test_attempts_and_errors_survive_a_restart(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    listen(outbox, LATER, bad={1}, with_session=False)
    producer.add(1, 2)

    async with consuming(outbox) as running:
        await running.settled("billing", outcome="retry")
    database.rows(NOW)
    async with consuming(outbox) as running:
        await running.done("billing")

    [dead] = database.dead_letters("billing")
    assert (dead.attempts, [each["message"] for each in dead.errors]) == (2, ["error 1", "error 2"])


async def test_attempts_and_wait_survive_an_outage_of_the_database(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    attempts = listen(outbox, LATER, bad={1}, with_session=False)
    producer.add(1)

    async with consuming(outbox, lease_duration=timedelta(seconds=3)) as running:
        await running.settled("billing", outcome="retry")
        async with database.locked("outbox_deliveries"):
            # It asks for deliveries that are due from time to time: there it is when it ends.
            await comes_true(database.waiting_backends)
            database.end_consumer_backends()
        await running.recorder.seen(DatabaseBack, where=Place("listener", "billing"))
        await running.consumer.drain(retries=False)

    assert attempts == [1]
    assert database.listener("billing").retry_count == 1
