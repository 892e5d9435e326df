"""What a consumer can be given as its database, and how the tables may be called."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import anyio
import pytest
from sqlalchemy import URL, Engine, create_engine, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from sa_outbox import Event, Outbox
from sa_outbox.schema import migrate
from sa_outbox.settings import Names, Notify
from tests.support import PATIENCE

from .conftest import QUICK, Database, Producer, make_consumer

pytestmark = [pytest.mark.anyio, pytest.mark.woken_by("notify")]


def as_text(url: URL) -> str:
    return url.render_as_string(hide_password=False)


def as_url_of_a_sync_driver(url: URL) -> URL:
    return url.set(drivername="postgresql+psycopg")


def as_url_of_asyncpg(url: URL) -> URL:
    return url.set(drivername="postgresql+asyncpg")


def as_engine(url: URL) -> Engine:
    return create_engine(url.set(drivername="postgresql+psycopg2"))


def as_async_engine(url: URL) -> AsyncEngine:
    return create_async_engine(url.set(drivername="postgresql+asyncpg"))


def as_async_engine_of_psycopg(url: URL) -> AsyncEngine:
    return create_async_engine(url.set(drivername="postgresql+psycopg"))


KINDS = [
    as_text,
    as_url_of_a_sync_driver,
    as_url_of_asyncpg,
    as_engine,
    as_async_engine,
    as_async_engine_of_psycopg,
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
async def test_every_kind_of_handler_works_on_every_kind_of_database(
    kind: Callable[[URL], Any],
    migrated_url: URL,
    outbox: Outbox,
    producer: Producer,
    database: Database,
) -> None:
    """With one event that fails and one behind it, so that every statement is run."""
    attempts: list[tuple[str, int]] = []

    def fail(listener: str, n: int) -> None:
        attempts.append((listener, n))
        if n == 2:
            raise ValueError("not this one")

    @outbox.listener("async", on="order.*", retry=QUICK)
    async def note(event: Event[Any], session: AsyncSession) -> None:
        values = {"name": "async", "n": event.payload["n"]}
        await session.execute(text("INSERT INTO effects VALUES (:name, :n)"), values)
        fail("async", event.payload["n"])

    @outbox.listener("sync", on="order.*", retry=QUICK)
    def note_in_thread(event: Event[Any], session: Session) -> None:
        values = {"name": "sync", "n": event.payload["n"]}
        session.execute(text("INSERT INTO effects VALUES (:name, :n)"), values)
        fail("sync", event.payload["n"])

    @outbox.listener("sync_batch", on="order.*", retry=QUICK, order="total")
    def note_many_in_thread(events: Sequence[Event[Any]], session: Session) -> None:
        for event in events:
            values = {"name": "sync_batch", "n": event.payload["n"]}
            session.execute(text("INSERT INTO effects VALUES (:name, :n)"), values)
            fail("sync_batch", event.payload["n"])

    producer.add(1, 2, 3, key="a")
    given = kind(migrated_url)
    consumer, _ = make_consumer(outbox, given)
    with anyio.fail_after(PATIENCE):
        await consumer.drain()
    if isinstance(given, AsyncEngine):
        await given.dispose()
    elif isinstance(given, Engine):
        given.dispose()

    for name in ("async", "sync", "sync_batch"):
        assert database.effects(name) == [1, 3]
        assert [each.position for each in database.dead_letters(name)] == [2]


async def test_names_and_schema_are_the_user_s(
    new_database: Callable[[], URL], notify: Notify
) -> None:
    url = new_database()
    names = Names(schema="Some", prefix="Box")
    engine = create_engine(url.set(drivername="postgresql+psycopg"))
    with engine.begin() as connection:
        migrate(connection, names)
    outbox = Outbox(schema="Some", prefix="Box", notify=notify)
    producer = Producer(outbox, engine)
    got: list[int] = []

    @outbox.listener("billing", on="order.*", retry=QUICK)
    async def charge(event: Event[Any], session: AsyncSession) -> None:
        if event.payload["n"] == 2:
            raise ValueError("not this one")
        got.append(event.payload["n"])

    producer.add(1, 2, 3, key="a")
    consumer, _ = make_consumer(outbox, url)
    with anyio.fail_after(PATIENCE):
        await consumer.drain()
    with engine.begin() as connection:
        found = connection.execute(text('SELECT position FROM "Some"."Box_dead_letters"'))
        assert found.scalars().all() == [2]
    engine.dispose()

    assert got == [1, 3]
