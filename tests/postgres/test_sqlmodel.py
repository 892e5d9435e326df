"""SQLModel's sessions, with their ``exec``, are sessions like others."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from sqlalchemy import Engine, NullPool
from sqlalchemy.ext.asyncio import AsyncEngine, async_sessionmaker, create_async_engine

from sa_outbox import AsyncOutboxSession, Event, Outbox, OutboxSession, RecordsEvents
from sa_outbox.consumer import Consumer

pytest.importorskip("sqlmodel", reason="SQLModel is not installed")

import sqlmodel
from sqlmodel.ext.asyncio.session import AsyncSession

pytestmark = pytest.mark.anyio


class Hero(RecordsEvents, sqlmodel.SQLModel, table=True):
    __tablename__ = "heroes"
    id: int | None = sqlmodel.Field(default=None, primary_key=True)
    name: str


HEROES = sqlmodel.SQLModel.metadata.tables["heroes"]


class SyncSession(OutboxSession, sqlmodel.Session):
    """With ``add_event`` and ``exec``."""


class BothSession(AsyncOutboxSession, AsyncSession):
    sync_session_class = SyncSession
    sync_session: SyncSession


@pytest.fixture
async def heroes(engine: Engine) -> AsyncIterator[AsyncEngine]:
    with engine.begin() as connection:
        HEROES.create(connection)
    url = engine.url.set(drivername="postgresql+asyncpg")
    made = create_async_engine(url, poolclass=NullPool)
    yield made
    await made.dispose()
    with engine.begin() as connection:
        HEROES.drop(connection)


async def written(outbox: Outbox, engine: AsyncEngine) -> list[str]:
    log = outbox.tables.outbox
    async with engine.connect() as connection:
        rows = await connection.execute(sqlmodel.select(log.c.event_type).order_by(log.c.id))
        return list(rows.scalars())


async def test_its_async_session_takes_events_and_has_exec(heroes: AsyncEngine) -> None:
    outbox = Outbox(notify="off")
    sessions = outbox.install(async_sessionmaker(heroes, class_=AsyncSession))

    async with sessions() as session:
        hero = Hero(name="Ada")
        hero.record_event("hero.born", lambda: {"id": hero.id})
        session.add(hero)
        outbox.add(session, "added")
        found = (await session.exec(sqlmodel.select(Hero))).one()
        await session.commit()

    assert found is hero
    assert await written(outbox, heroes) == ["hero.born", "added"]


async def test_a_class_of_both_has_add_event_and_exec(heroes: AsyncEngine) -> None:
    outbox = Outbox(notify="off")
    sessions: Any = outbox.async_sessionmaker(heroes, class_=BothSession)

    async with sessions() as session:
        session.add(Hero(name="Ada"))
        session.add_event("added")
        names = (await session.exec(sqlmodel.select(Hero.name))).all()
        await session.rollback()
        session.add_event("kept")
        await session.commit()

    assert names == ["Ada"]
    assert await written(outbox, heroes) == ["kept"]


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
async def test_a_handler_that_asks_for_its_session_gets_one(
    heroes: AsyncEngine, is_async: bool
) -> None:
    outbox = Outbox(notify="off")
    if is_async:

        @outbox.listener("heroes", on="hero.*", start="beginning")
        async def handle(event: Event, session: AsyncSession) -> None:
            assert (await session.exec(sqlmodel.select(Hero))).all() == []
            session.add(Hero(name=event.payload["name"]))
    else:

        @outbox.listener("heroes", on="hero.*", start="beginning")
        def handle_in_a_thread(event: Event, session: sqlmodel.Session) -> None:
            assert session.exec(sqlmodel.select(Hero)).all() == []
            session.add(Hero(name=event.payload["name"]))

    async with outbox.async_sessionmaker(heroes).begin() as session:
        session.add_event("hero.born", {"name": "Ada"})

    await Consumer(outbox, heroes).drain()

    async with AsyncSession(heroes) as plain:
        assert (await plain.exec(sqlmodel.select(Hero.name))).all() == ["Ada"]
