"""Handlers that change ``search_path``: settled where the consumer has found its tables."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import URL, Engine, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from sa_outbox import AsyncOutboxSession, Event, Outbox, schema
from sa_outbox.observe import AttemptFailed, LeaseDropped
from sa_outbox.policy.order import Order
from sa_outbox.settings import Names

from .conftest import ONCE, Consuming, Database, Producer

pytestmark = [pytest.mark.anyio, pytest.mark.woken_by("poll")]

EFFECT = text("INSERT INTO public.effects VALUES ('billing', :n)")
ELSEWHERE = "SET LOCAL search_path TO elsewhere"
NOWHERE = "SET LOCAL search_path TO pg_catalog"
COUNTED = ("", "_listeners", "_deliveries", "_dead_letters", "_ranges", "_inbox", "_results")


@pytest.fixture(scope="module")
def second_outbox(shared_engine: Engine) -> Iterator[Engine]:
    """Another complete outbox in a schema beside ours, with a listener of the same name."""
    with shared_engine.begin() as connection:
        connection.execute(text("CREATE SCHEMA elsewhere"))
        schema.migrate(connection, Names(schema="elsewhere"))
    yield shared_engine
    with shared_engine.begin() as connection:
        connection.execute(text("DROP SCHEMA elsewhere CASCADE"))


@pytest.fixture
def elsewhere(second_outbox: Engine, database: Database) -> Iterator[None]:
    """Its listener has a cursor and holds nothing; nothing there may change."""
    database.rows("DELETE FROM elsewhere.outbox_listeners")
    database.rows("INSERT INTO elsewhere.outbox_listeners (name) VALUES ('billing')")
    before = contents(database)
    yield
    assert contents(database) == before


def contents(database: Database) -> list[Any]:
    tables = [f"elsewhere.outbox{suffix}" for suffix in COUNTED]
    return [database.value(f"SELECT coalesce(json_agg(t), '[]')::text FROM {t} t") for t in tables]


@pytest.fixture
async def throwaway_engine(migrated_url: URL, engine: Engine) -> AsyncIterator[AsyncEngine]:
    """One whose connections nobody gets after the test."""
    made = create_async_engine(migrated_url.set(drivername="postgresql+asyncpg"))
    yield made
    await made.dispose()


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("to", [ELSEWHERE, NOWHERE, "SET search_path TO elsewhere"])
@pytest.mark.parametrize("order", ["key", "total", "none"])
async def test_a_handler_that_changes_the_search_path_is_settled_in_the_right_outbox(
    order: Order,
    to: str,
    outbox: Outbox,
    producer: Producer,
    database: Database,
    consuming: Consuming,
    throwaway_engine: AsyncEngine,
) -> None:
    @outbox.listener("billing", on="order.*", order=order, retry=ONCE)
    async def charge(event: Event[Any], session: AsyncSession) -> None:
        await session.execute(EFFECT, {"n": event.payload["n"]})
        await session.execute(text(to))

    producer.add(*range(5))

    settings = {"verify_interval": timedelta(milliseconds=50)}
    async with consuming(outbox, engine=throwaway_engine, **settings) as running:
        await running.done("billing", 5)
        producer.add(5)  # on a connection that may lead elsewhere by now
        await running.done("billing", 6)
        await running.consumer.drain()

    assert database.effects("billing") == list(range(6))
    assert database.listener("billing").last_processed_id == 6
    assert database.listener("billing").crashes == 0
    assert running.recorder.of(AttemptFailed) == []
    assert running.recorder.of(LeaseDropped) == []


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("to", [ELSEWHERE, NOWHERE])
async def test_what_such_a_handler_adds_marks_and_cancels_is_in_the_right_outbox(
    to: str, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    firsts: list[bool] = []

    @outbox.listener("billing", on="order.*", retry=ONCE)
    async def charge(event: Event[Any], session: AsyncOutboxSession) -> None:
        await session.execute(text(to))
        session.add_event("paid", {"n": 1}, idempotency_key="once")
        await session.flush()
        async with outbox.inbox.once(session, "message", consumer="billing") as first:
            firsts.append(first)
        await outbox.status(session, event.event_id)
        await outbox.cancel(session, event.event_id)

    producer.add(1, 2)

    async with consuming(outbox) as running:
        await running.done("billing", 2)

    assert database.value("SELECT count(*) FROM outbox WHERE event_type = 'paid'") == 1
    assert firsts == [True, False]
    assert running.recorder.of(AttemptFailed) == []


@pytest.mark.usefixtures("elsewhere")
async def test_a_sync_handler_may_change_the_search_path_too(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    @outbox.listener("billing", on="order.*", retry=ONCE)
    def charge(event: Event[Any], session: Session) -> None:
        session.execute(EFFECT, {"n": event.payload["n"]})
        session.execute(text(ELSEWHERE))

    producer.add(1, 2)

    async with consuming(outbox) as running:
        await running.done("billing", 2)

    assert database.effects("billing") == [1, 2]
    assert running.recorder.of(LeaseDropped) == []


async def test_a_schema_that_needs_quotes_is_found_by_the_search_path(
    migrated_url: URL, engine: Engine, database: Database, consuming: Consuming
) -> None:
    """A name that ``schema=`` would refuse."""
    with engine.begin() as connection:
        connection.execute(text('CREATE SCHEMA "my-app é"'))
        connection.execute(text('SET LOCAL search_path TO "my-app é"'))
        schema.migrate(connection, Names())
    outbox = Outbox(notify="off")

    @outbox.listener("billing", on="order.*", retry=ONCE)
    async def charge(event: Event[Any], session: AsyncSession) -> None:
        await session.execute(EFFECT, {"n": event.payload["n"]})
        await session.execute(text("SET LOCAL search_path TO public"))

    there = create_async_engine(
        migrated_url.set(drivername="postgresql+asyncpg"),
        connect_args={"server_settings": {"search_path": '"my-app é"'}},
    )
    try:
        async with outbox.async_sessionmaker(there).begin() as session:
            session.add_event("order.placed", {"n": 7})
        async with consuming(outbox, engine=there) as running:
            await running.done("billing")
        assert database.effects("billing") == [7]
        found = 'SELECT last_processed_id FROM "my-app é".outbox_listeners'
        assert database.value(found) == 1
    finally:
        await there.dispose()
        database.rows('DROP SCHEMA "my-app é" CASCADE')
