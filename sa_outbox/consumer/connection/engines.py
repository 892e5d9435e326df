"""From what a consumer is given to what it uses: engines for handlers, and connections."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import anyio
import asyncpg
from sqlalchemy import URL, Engine, create_engine
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool
from sqlalchemy.util import greenlet_spawn

from sa_outbox.errors import ConfigError
from sa_outbox.schema.connect import dsn_of, parse_url
from sa_outbox.sql.server.notify import prepare_connection

from .connections import Query
from .shield import to_its_end

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine, Sequence

    from sa_outbox.declare.listener import Listener

    from .connections import Connect, Driver

APPLICATION_NAME = "sa_outbox consumer"
_PREPARE = Query(prepare_connection())
SPARE = 2
"""Connections in a pool beyond what handlers use at once."""
_MARGIN, _A_DAY = timedelta(seconds=30), timedelta(days=1)
_IDLE = "idle_in_transaction_session_timeout"


def require_asyncio() -> None:
    """Raise ``ConfigError`` under another event loop: trio would fail later, with an unhelpful
    error."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        raise ConfigError(
            "a consumer runs in asyncio's event loop only, or in uvloop's: the driver and "
            "SQLAlchemy's async sessions know no other. From trio, run it in a thread: "
            'anyio.run(consumer.run, backend="asyncio")'
        ) from None


@dataclass
class Engines:
    """Engines that were given, and those created here, which are disposed of at the end."""

    asynchronous: AsyncEngine
    synchronous: Engine | None
    connect: Connect
    url: URL
    made: list[Engine | AsyncEngine] = field(default_factory=list)

    async def dispose(self) -> None:
        await self._dispose(self.made)

    async def rest(self) -> None:
        """Close what no one uses at the moment; also of engines that were given."""
        found = (self.asynchronous, self.synchronous)
        await self._dispose([each for each in found if each is not None])

    async def _dispose(self, engines: Sequence[Engine | AsyncEngine]) -> None:
        for engine in engines:
            if isinstance(engine, AsyncEngine):
                await engine.dispose()
            else:
                await anyio.to_thread.run_sync(engine.dispose)


def engines(
    database: str | URL | Engine | AsyncEngine,
    sync_engine: Engine | None,
    listeners: Sequence[Listener],
) -> Engines:
    """Everything the handlers of *listeners* need, created from *database*. No I/O."""
    made: list[Engine | AsyncEngine] = []
    if isinstance(database, AsyncEngine):
        asynchronous, url = database, database.url
        connect = connector(database)
    else:
        if isinstance(database, Engine):
            sync_engine = sync_engine or database
        url = database.url if isinstance(database, Engine) else parse_url(database)
        asynchronous = _async_engine(url, listeners)
        made.append(asynchronous)
        connect = connector(asynchronous)
    if asynchronous.dialect.name != "postgresql":
        raise ConfigError(f"sa_outbox needs PostgreSQL, not {asynchronous.dialect.name}")
    if sync_engine is None and any(_using(listeners, "sync")):
        sync_engine = _sync_engine(url, listeners)
        made.append(sync_engine)
    return Engines(asynchronous, sync_engine, connect, url, made)


def connect_to(url: str | URL) -> Connect:
    """How to connect to a URL: for a LISTEN that bypasses a pooler."""
    return connector(parse_url(url))


def connector(database: URL | Engine | AsyncEngine) -> Connect:
    """How to connect: the engine's own way if it uses asyncpg, otherwise by its URL.

    The pool's creator includes whatever the user configured about connecting: connect_args, a
    creator, do_connect hooks that fetch a token.
    """
    if isinstance(database, AsyncEngine) and database.dialect.driver == "asyncpg":
        return lambda: _whole(_prepared(greenlet_spawn(_by_creator, database.sync_engine)))
    url = database if isinstance(database, URL) else database.url
    dsn = dsn_of(url)
    return lambda: _whole(_prepared(asyncpg.connect(dsn)))


async def _whole(connecting: Coroutine[Any, Any, Driver]) -> Driver:
    return await to_its_end(connecting, undo=lambda driver: driver.terminate())


def _by_creator(engine: Engine) -> Driver:
    creator = engine.pool._creator  # noqa: SLF001 - recreate() would bring the pool's hooks along
    proxied = NullPool(creator, dialect=engine.dialect).connect()
    proxied.detach()
    adapted: Any = proxied.dbapi_connection
    return adapted.driver_connection


async def _prepared(connecting: Awaitable[Driver]) -> Driver:
    driver = await connecting
    try:
        await driver.fetchval(_PREPARE.sql, *_PREPARE.arguments({"name": APPLICATION_NAME}))
    except BaseException:
        driver.terminate()
        raise
    return driver


def _async_engine(url: URL, listeners: Sequence[Listener]) -> AsyncEngine:
    options: dict[str, Any] = {"pool_size": _pool_size(listeners, "async"), "max_overflow": 0}
    options["hide_parameters"] = True  # an error's text is stored, and parameters contain data
    settings = {_IDLE: _longest_idle(listeners, "async")}
    if url.drivername == "postgresql+asyncpg":
        return create_async_engine(url, connect_args={"server_settings": settings}, **options)
    if url.drivername != "postgresql" and url.get_dialect().is_async:
        return create_async_engine(url, **options)
    arguments = {"dsn": dsn_of(url), "server_settings": settings}
    bare = URL.create("postgresql+asyncpg", *url[1:6])
    return create_async_engine(bare, connect_args=arguments, **options)


def _sync_engine(url: URL, listeners: Sequence[Listener]) -> Engine:
    options: dict[str, Any] = {"pool_size": _pool_size(listeners, "sync"), "max_overflow": 0}
    options["hide_parameters"] = True
    given = url.query.get("options", "")
    idle = f"{given} -c {_IDLE}={_longest_idle(listeners, 'sync')}".strip()
    options["connect_args"] = {"options": idle}
    for driver in ("psycopg", "psycopg2"):
        if find_spec(driver) is not None:
            return create_engine(url.set(drivername=f"postgresql+{driver}"), **options)
    names = ", ".join(each.name for each in _using(listeners, "sync"))
    raise ConfigError(
        f"sync handlers with a session need a sync driver ({names}): pip install "
        '"psycopg[binary]", or make the handlers async'
    )


def _pool_size(listeners: Sequence[Listener], session: str) -> int:
    """For as many handlers as run at once when this process holds every partition."""
    using = _using(listeners, session)
    return SPARE + sum(each.concurrency * each.partitions for each in using)


def _using(listeners: Sequence[Listener], session: str) -> list[Listener]:
    """Those with a handler that takes such a session."""
    return [each for each in listeners if any(one.call.session == session for one in each.handlers)]


def _longest_idle(listeners: Sequence[Listener], session: str) -> str:
    """Milliseconds after which the server ends the transaction of a suspended process: its locks
    would block whoever took the listener over.

    A handler may be silent for as long as its ``timeout`` allows; one without a limit for a day,
    the longest ``timeout`` there is.
    """
    limits = [each.timeout or _A_DAY for each in _using(listeners, session)]
    return str(int((max(limits, default=_MARGIN) + _MARGIN).total_seconds() * 1000))
