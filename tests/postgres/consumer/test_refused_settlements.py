"""Statements of ours that settle an event in its handler's session, refused: not its failure."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from sqlalchemy import URL, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from sa_outbox import Event, Outbox
from sa_outbox.consumer.connection.engines import APPLICATION_NAME
from sa_outbox.consumer.fault import suspects
from sa_outbox.observe import AttemptFailed, DatabaseAway, Place
from sa_outbox.policy.order import Order
from tests.support import comes_true

from .conftest import ONCE, Consuming, Database, Producer

pytestmark = [pytest.mark.anyio, pytest.mark.woken_by("notify")]

EFFECT = text("INSERT INTO effects VALUES ('billing', :n)")
COUNT = 12
ROWS = {"key": "outbox_listeners", "total": "outbox_listeners", "none": "outbox_ranges"}


@pytest.fixture
async def limited(migrated_url: URL, request: pytest.FixtureRequest) -> AsyncIterator[AsyncEngine]:
    """An engine whose role has a limit for statements, or for locks."""
    engine = create_async_engine(
        migrated_url.set(drivername="postgresql+asyncpg"),
        connect_args={"server_settings": {request.param: "100ms"}},
    )
    yield engine
    await engine.dispose()


@pytest.mark.parametrize("limited", ["lock_timeout", "statement_timeout"], indirect=True)
@pytest.mark.parametrize("order", ["key", "total", "none"])
async def test_a_limit_that_cuts_our_statements_short_is_no_attempt(
    order: Order,
    limited: AsyncEngine,
    outbox: Outbox,
    producer: Producer,
    database: Database,
    consuming: Consuming,
) -> None:
    calls: list[int] = []

    @outbox.listener("billing", on="order.*", order=order, retry=ONCE)
    async def charge(event: Event[Any], session: AsyncSession) -> None:
        calls.append(event.payload["n"])
        await session.execute(EFFECT, {"n": event.payload["n"]})
        if len(calls) == 1:
            begun.set()
            await locked.wait()

    begun, locked = anyio.Event(), anyio.Event()
    for n in range(COUNT):
        producer.add(n, key=str(n))

    async with consuming(outbox, engine=limited) as running:
        await begun.wait()
        async with database.locked(ROWS[order]):
            locked.set()
            await running.recorder.seen(DatabaseAway, where=Place("handler", "billing"))
        await running.done("billing", COUNT)

    assert database.effects("billing") == list(range(COUNT))
    assert running.recorder.of(AttemptFailed) == []
    assert database.dead_letters("billing") == []


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_a_cancel_of_our_statement_by_an_operator_is_no_attempt(
    kind: str, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    begun, go = anyio.Event(), anyio.Event()

    if kind == "async":

        @outbox.listener("billing", on="order.*", retry=ONCE)
        async def charge(event: Event[Any], session: AsyncSession) -> None:
            await session.execute(EFFECT, {"n": event.payload["n"]})
            begun.set()
            await go.wait()
    else:

        @outbox.listener("billing", on="order.*", retry=ONCE)
        def charge_in_thread(event: Event[Any], session: Session) -> None:
            session.execute(EFFECT, {"n": event.payload["n"]})
            anyio.from_thread.run_sync(begun.set)
            anyio.from_thread.run(go.wait)

    producer.add(1)
    cancel = (
        "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
        " AND wait_event_type = 'Lock' AND query ILIKE '%outbox_listeners%'"
        f" AND application_name <> '{APPLICATION_NAME}'"  # of the handler's session, not a renewal
    )

    async with consuming(outbox) as running:
        await begun.wait()
        async with database.locked("outbox_listeners"):
            go.set()
            await comes_true(lambda: database.rows(cancel))
            await running.recorder.seen(DatabaseAway, where=Place("handler", "billing"))
        await running.done("billing")

    assert database.effects("billing") == [1]
    assert running.recorder.of(AttemptFailed) == []


async def test_a_handler_after_which_nothing_can_be_settled_fails_at_last(
    outbox: Outbox,
    producer: Producer,
    database: Database,
    consuming: Consuming,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Here it forbids the transaction to write, which a savepoint would undo. Others are done."""
    monkeypatch.setattr(suspects, "FREE_REFUSALS", 2)
    calls: list[int] = []

    @outbox.listener("billing", on="order.*", retry=ONCE, group_commit=False)
    async def charge(event: Event[Any], session: AsyncSession) -> None:
        if event.payload["n"] == 1:
            calls.append(1)
            await session.execute(text("SET LOCAL transaction_read_only = on"))

    producer.add(0, 1, 2)

    async with consuming(outbox) as running:
        await running.dead("billing")
        await running.done("billing", 2)

    (dead,) = database.dead_letters("billing")
    assert (dead.position, dead.attempts) == (2, 1)
    assert "read-only transaction" in str(dead.errors)
    assert len(calls) == 3


async def test_a_handler_that_hides_an_error_of_the_database_has_failed(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    """Its transaction is aborted: that is no refusal of ours."""
    calls: list[int] = []

    @outbox.listener("billing", on="order.*", retry=ONCE)
    async def charge(event: Event[Any], session: AsyncSession) -> None:
        calls.append(1)
        with pytest.raises(SQLAlchemyError):
            await session.execute(text("SELECT 1 / 0"))

    producer.add(1)

    async with consuming(outbox) as running:
        await running.dead("billing")

    assert len(calls) == 1
