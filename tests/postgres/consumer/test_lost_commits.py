"""A database that comes back without its last commits. What a process remembers is compared.

Here its tables are set back by hand; tests/crash/test_failover.py promotes a standby.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any, Literal
from uuid import uuid4

import anyio
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from sa_outbox import Event, Outbox
from sa_outbox.consumer.fault.refusals import PARTS, Refusal
from sa_outbox.observe import CommitsLost, DeliverySettled, LeaseDropped
from sa_outbox.policy.order import Order
from tests.support import comes_true

from .conftest import ONCE, Consuming, Database, Producer

pytestmark = pytest.mark.anyio

ORDERS: tuple[Literal["key", "total"], ...] = ("key", "total")
EFFECT = text("INSERT INTO effects VALUES (:listener, :n)")
DIE = text("SELECT pg_terminate_backend(pg_backend_pid(), 0), pg_sleep(5)")


def set_back(database: Database, position: int, writes: int) -> None:
    """As if the last *writes* of the listener's row had never been."""
    database.rows(
        "UPDATE outbox_listeners SET last_processed_id = :position, revision = revision - :writes",
        position=position,
        writes=writes,
    )


def lose_events(database: Database, above: int) -> None:
    """As if they had never been committed: their ids are drawn again."""
    database.rows("DELETE FROM outbox WHERE id > :above", above=above)
    sequence = "pg_get_serial_sequence('outbox', 'id')"
    database.rows(f"SELECT setval({sequence}, :above)", above=above)


@pytest.mark.parametrize("order", ORDERS)
async def test_a_row_that_went_back_is_a_lost_term_at_the_next_renewal(
    outbox: Outbox,
    producer: Producer,
    database: Database,
    consuming: Consuming,
    order: Literal["key", "total"],
) -> None:
    got: list[int] = []

    @outbox.listener("billing", on="order.*", order=order)
    async def charge(event: Event[Any]) -> None:
        got.append(event.payload["n"])

    async with consuming(outbox, lease_duration=timedelta(seconds=6)) as running:
        for n in range(6):
            producer.add(n)
            await running.done("billing", n + 1)
        await running.listening()
        got.clear()
        [third] = database.rows("SELECT id FROM outbox ORDER BY id OFFSET 2 LIMIT 1")
        set_back(database, third.id, writes=3)

        await running.recorder.seen(LeaseDropped, listener="billing")
        # Nobody has added anything since: what the row says is to be done is done.
        await comes_true(lambda: got == [3, 4, 5])
        producer.add(6)
        await comes_true(lambda: got == [3, 4, 5, 6])

    assert database.listener("billing").crashes == 0


@pytest.mark.parametrize("order", ORDERS)
async def test_a_row_that_went_back_with_its_server_is_noticed_when_that_is_back(
    outbox: Outbox,
    producer: Producer,
    database: Database,
    consuming: Consuming,
    order: Literal["key", "total"],
) -> None:
    """Long before a renewal, and before anything new is delivered."""
    got: list[int] = []

    @outbox.listener("billing", on="order.*", order=order)
    async def charge(event: Event[Any]) -> None:
        got.append(event.payload["n"])

    async with consuming(outbox, lease_duration=timedelta(minutes=10)) as running:
        for n in range(6):
            producer.add(n)
            await running.done("billing", n + 1)
        await running.listening()
        got.clear()
        [third] = database.rows("SELECT id FROM outbox ORDER BY id OFFSET 2 LIMIT 1")
        set_back(database, third.id, writes=3)
        database.end_other_backends()
        producer.add(6)
        await comes_true(lambda: 6 in got)

    assert got == [3, 4, 5, 6]


@pytest.mark.parametrize("with_session", [False, True], ids=["plain", "session"])
@pytest.mark.parametrize("order", ORDERS)
async def test_events_that_were_read_and_lost_do_not_hide_those_that_have_their_ids(
    outbox: Outbox,
    producer: Producer,
    database: Database,
    consuming: Consuming,
    order: Literal["key", "total"],
    with_session: bool,
) -> None:
    """Nothing of them was saved, so the row is as it was: only the log tells."""
    got: list[int] = []
    proceed = anyio.Event()

    async def plain(event: Event[Any]) -> None:
        if event.payload["n"] >= 100 and not proceed.is_set():
            began.set()
            await proceed.wait()
        got.append(event.payload["n"])

    async def in_session(event: Event[Any], session: AsyncSession) -> None:
        await plain(event)
        await session.execute(EFFECT, {"listener": "billing", "n": event.payload["n"]})

    began = anyio.Event()
    handler: Any = in_session if with_session else plain
    outbox.listener("billing", on="order.*", order=order)(handler)

    async with consuming(outbox, lease_duration=timedelta(minutes=10)) as running:
        producer.add(0, 1)
        await running.done("billing", 2)
        await running.listening()
        [newest] = database.rows("SELECT max(id) AS id FROM outbox")
        producer.add(*range(100, 110))
        await began.wait()
        lose_events(database, newest.id)
        producer.add(*range(200, 220))  # more than were lost: the ceiling is where it was, or above
        database.end_other_backends()
        await running.recorder.seen(CommitsLost)
        proceed.set()
        await comes_true(lambda: set(range(200, 220)) <= set(got))

    # An attempt whose connection was dead has no outcome, and is made again.
    assert list(dict.fromkeys(n for n in got if n >= 200)) == list(range(200, 220))
    if with_session:
        assert database.effects("billing") == [0, 1, *range(200, 220)]


@pytest.mark.parametrize("order", ORDERS)
async def test_the_lost_connections_of_an_event_that_was_lost_are_not_those_of_the_one_with_its_id(
    outbox: Outbox,
    producer: Producer,
    database: Database,
    consuming: Consuming,
    order: Literal["key", "total"],
) -> None:
    died: set[int] = set()
    began = anyio.Event()

    @outbox.listener("billing", on="order.*", order=order, retry=ONCE)
    async def charge(event: Event[Any], session: AsyncSession) -> None:
        n = event.payload["n"]
        if n > 0 and n not in died:
            died.add(n)
            await session.execute(DIE)  # the first loss of each: it is free
        if n == 100:
            began.set()
            await session.execute(text("SELECT pg_sleep(60)"))
        await session.execute(EFFECT, {"listener": "billing", "n": n})

    async with consuming(outbox, lease_duration=timedelta(minutes=10)) as running:
        producer.add(0)
        await running.done("billing")
        await running.listening()
        [newest] = database.rows("SELECT max(id) AS id FROM outbox")
        producer.add(100)
        await began.wait()
        lose_events(database, newest.id)
        producer.add(200)
        database.end_other_backends()
        await comes_true(lambda: len(died) == 2 and running.recorder.of(DeliverySettled)[1:] != [])

    assert database.effects("billing") == [0, 200]
    assert database.dead_letters("billing") == []


@pytest.mark.parametrize("order", ["key", "total", "none"])
async def test_a_refusal_of_an_event_that_was_lost_is_not_held_against_the_one_that_has_its_id(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming, order: Order
) -> None:
    got: list[int] = []

    @outbox.listener("billing", on="order.*", order=order)
    async def charge(event: Event[Any]) -> None:
        got.append(event.payload["n"])

    async with consuming(outbox) as running:
        producer.add(0)
        await running.done("billing")
        [newest] = database.rows("SELECT max(id) AS id FROM outbox")
        services = running.consumer._services
        assert services is not None
        refusals = services.context.refusals["billing"]
        refusals.known[newest.id + 1] = Refusal(uuid4(), ValueError("lost"), PARTS)
        producer.add(1)
        await running.done("billing", 2)

    assert got == [0, 1]
    assert refusals.known == {}
    assert database.dead_letters("billing") == []


async def test_a_newest_event_that_was_deleted_is_no_alarm(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    @outbox.listener("billing", on="order.*")
    async def charge(event: Event[Any]) -> None: ...

    async with consuming(outbox) as running:
        producer.add(1, 2)
        await running.done("billing", 2)
        await running.listening()
        database.rows("DELETE FROM outbox")
        producer.add(3)
        await running.done("billing", 3)
        await running.consumer.drain()

    assert running.recorder.of(CommitsLost) == []
    assert running.recorder.of(LeaseDropped) == []


async def test_rows_compared_all_the_time_under_load_raise_no_alarm(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    """While they are written, by the pump and by sessions that commit side by side."""
    for order in ("key", "total", "none"):

        @outbox.listener(f"{order}.plain", on="order.*", order=order, batch_size=5)
        async def plain(event: Event[Any]) -> None: ...

        @outbox.listener(f"{order}.session", on="order.*", order=order, batch_size=5)
        async def in_session(event: Event[Any], session: AsyncSession) -> None:
            await session.execute(text("SELECT 1"))

    compared = 0

    async def compare() -> None:
        nonlocal compared
        while True:
            services = running.consumer._services
            assert services is not None
            await services.memory.compare()
            compared += 1

    async with consuming(outbox) as running, anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(compare)
        for n in range(120):
            await anyio.to_thread.run_sync(partial(producer.add, n, key=f"key {n % 7}"))
        await running.consumer.drain()
        tasks.cancel_scope.cancel()

    assert compared > 50
    assert running.recorder.of(LeaseDropped) == []
    assert running.recorder.of(CommitsLost) == []
