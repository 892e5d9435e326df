"""What ``OutboxPlugin`` promises besides the commit before the response."""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import SADeprecationWarning
from sqlalchemy.ext.asyncio import create_async_engine

from sa_outbox import Event, Outbox
from sa_outbox.consumer import Consumer
from sa_outbox.errors import ConfigError
from tests.support import comes_true

with warnings.catch_warnings():
    # Litestar imports Advanced Alchemy, which is older than the SQLAlchemy here.
    warnings.simplefilter("ignore", SADeprecationWarning)
    from advanced_alchemy.extensions.litestar import SQLAlchemyAsyncConfig, SQLAlchemyPlugin
    from litestar import Litestar
    from litestar.config.app import AppConfig
    from litestar.di import Provide
    from litestar.plugins import InitPlugin

    from sa_outbox.contrib.litestar import OutboxPlugin

pytestmark = pytest.mark.anyio


class Noting(InitPlugin):
    """Adds a lifespan by another plugin of its own, as Advanced Alchemy's does."""

    def __init__(self, said: list[str], *, adds: bool = True) -> None:
        self._said = said
        self._adds = adds

    def on_app_init(self, app_config: AppConfig) -> AppConfig:
        if self._adds:
            app_config.plugins.append(Noting(self._said, adds=False))
        else:
            app_config.lifespan.append(self._around)
        return app_config

    @asynccontextmanager
    async def _around(self, _: Litestar) -> AsyncIterator[None]:
        self._said.append("plugin begins")
        yield
        self._said.append("plugin ends")


@pytest.mark.parametrize("is_first", [True, False], ids=["before it", "after it"])
async def test_the_consumer_runs_within_the_lifespans_of_all_plugins(
    engine: Engine, is_first: bool
) -> None:
    outbox, said = Outbox(), list[str]()

    @outbox.lifespan
    async def around() -> AsyncIterator[None]:
        said.append("consumer begins")
        yield
        said.append("consumer ends")

    @outbox.listener("billing", on="*", start="beginning")
    async def bill(event: Event) -> None:
        said.append("billed")

    with outbox.sessionmaker(engine).begin() as session:
        session.add_event("order.placed")
    async_engine = create_async_engine(engine.url.set(drivername="postgresql+asyncpg"))
    plugins: list[Any] = [OutboxPlugin(Consumer(outbox, async_engine)), Noting(said)]

    app = Litestar(plugins=plugins if is_first else plugins[::-1])
    async with app.lifespan():
        await comes_true(lambda: "billed" in said)
    await async_engine.dispose()

    assert said == [
        *("plugin begins", "consumer begins", "billed"),
        *("consumer ends", "plugin ends"),
    ]


async def test_advanced_alchemy_disposes_of_the_engine_after_the_consumer_has_stopped(
    engine: Engine,
) -> None:
    outbox = Outbox()
    async_engine = create_async_engine(engine.url.set(drivername="postgresql+asyncpg"))

    said: list[str] = []

    @outbox.listener("billing", on="*")
    async def bill(event: Event) -> None: ...

    @outbox.lifespan
    async def around() -> AsyncIterator[None]:
        said.append("begins")
        yield
        async with async_engine.connect() as connection:  # opens a pool that nobody would close
            await connection.execute(text("SELECT 1"))
        said.append("ends")

    config = SQLAlchemyAsyncConfig(engine_instance=async_engine)
    plugins = [OutboxPlugin(Consumer(outbox, async_engine)), SQLAlchemyPlugin(config)]
    async with Litestar(plugins=plugins).lifespan():
        await comes_true(lambda: said == ["begins"])

    pool: Any = async_engine.pool
    assert said == ["begins", "ends"]
    assert pool.checkedin() == 0


def test_a_dependency_of_that_name_is_not_replaced() -> None:
    sessions = Outbox().sessionmaker()
    mine = {"session": Provide(lambda: None, sync_to_thread=False)}

    with pytest.raises(ConfigError, match="choose another session_key"):
        Litestar(plugins=[OutboxPlugin(sessions=sessions)], dependencies=mine)
    app = Litestar(plugins=[OutboxPlugin(sessions=sessions, session_key="db")], dependencies=mine)
    assert {"session", "db"} <= app.dependencies.keys()


def test_what_is_no_factory_is_refused(engine: Engine) -> None:
    wrong: Any = engine

    with pytest.raises(ConfigError, match=r"outbox\.sessionmaker\(engine\) returns, not Engine"):
        Litestar(plugins=[OutboxPlugin(sessions=wrong)])
