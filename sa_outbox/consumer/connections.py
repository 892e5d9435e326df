"""The consumer's own connections: bare asyncpg, apart from the pool that handlers use.

Apart, so that handlers which take every connection can't keep a cursor from moving. Bare, because
the read is the hot path. Autocommit unless ``transaction`` is asked for.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio
import asyncpg
from sqlalchemy import URL, Engine
from sqlalchemy.dialects.postgresql import asyncpg as asyncpg_dialect
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.pool import NullPool
from sqlalchemy.util import greenlet_spawn

from sa_outbox.sql.notify import prepare_connection
from sa_outbox.sql.transactions import COMMIT, ROLLBACK, begin

if TYPE_CHECKING:
    from sqlalchemy import Insert, Select, TextClause

    from sa_outbox.settings import ConsumerSettings

Driver: TypeAlias = Any  # asyncpg.Connection, which has no types
Connect: TypeAlias = Callable[[], Awaitable[Driver]]

APPLICATION_NAME = "sa_outbox consumer"
_DIALECT = asyncpg_dialect.dialect()  # type: ignore[no-untyped-call]  # SQLAlchemy's, untyped
_AWAY = ("08", "53", "57P", "58", "25P03")
"""Classes of SQLSTATE that speak of the server, not of the statement: connection, resources (disk,
memory, connections), shutdown, system errors; and a transaction that stood still for too long."""


class Query:
    """A statement of ``sql/``, rendered for asyncpg once."""

    __slots__ = ("_defaults", "_names", "clause", "sql")

    def __init__(self, clause: TextClause | Select[Any] | Insert) -> None:
        compiled: Any = clause.compile(dialect=_DIALECT)
        self.clause = clause
        self.sql: str = compiled.string
        self._names: list[str] = list(compiled.positiontup or ())
        self._defaults: dict[str, Any] = dict(compiled.params)

    def arguments(self, values: dict[str, Any]) -> list[Any]:
        defaults = self._defaults
        return [values[name] if name in values else defaults[name] for name in self._names]


_PREPARE = Query(prepare_connection())


class Connection:
    """One connection, for the moment."""

    __slots__ = ("_begin", "driver", "timeout")

    def __init__(self, driver: Driver, timeout: float, begin: str) -> None:
        self.driver = driver
        self.timeout = timeout
        self._begin = begin

    async def rows(self, query: Query, /, **values: Any) -> list[Any]:
        fetch = self.driver.fetch
        found: list[Any] = await fetch(query.sql, *query.arguments(values), timeout=self.timeout)
        return found

    async def value(self, query: Query, /, **values: Any) -> Any:
        arguments = query.arguments(values)
        return await self.driver.fetchval(query.sql, *arguments, timeout=self.timeout)

    async def run(self, query: Query, /) -> None:
        """A statement that has no answer and is not worth remembering: DDL."""
        await self.driver.execute(query.sql, timeout=self.timeout)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """Committed at the end. If this process sleeps in the middle, the server ends it."""
        execute = self.driver.execute
        await execute(self._begin, timeout=self.timeout)
        try:
            yield
        except BaseException:
            # Its connection is thrown away; a rollback frees the locks sooner.
            with suppress(Exception):
                await execute(ROLLBACK, timeout=self.timeout)
            raise
        await execute(COMMIT, timeout=self.timeout)


class Connections:
    """A few connections that are kept open, made when they are needed."""

    def __init__(
        self, connect: Connect, *, most: int, timeout: float, connecting: float, patience: float
    ) -> None:
        """*patience*: for how long the server lets a transaction stand still."""
        self._connect = connect
        self._begin = begin(patience)
        # Fast: a limiter that gives way to others each time costs a turn of the loop per statement.
        self._limit = anyio.Semaphore(most, fast_acquire=True)
        self._idle: list[Driver] = []
        self._timeout = timeout
        self._connecting = connecting

    @classmethod
    def of(cls, connect: Connect, settings: ConsumerSettings, *, most: int) -> Connections:
        return cls(
            connect,
            most=most,
            timeout=settings.statement_timeout.total_seconds(),
            connecting=settings.probe_timeout.total_seconds(),
            patience=settings.lease_duration.total_seconds(),
        )

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """A connection; after any error it is thrown away, for it may be in any state."""
        async with self._limit:
            driver = await self._take()
            try:
                yield Connection(driver, self._timeout, self._begin)
            except BaseException:
                driver.terminate()
                raise
            if not driver.is_closed():
                self._idle.append(driver)

    async def rows(self, query: Query, /, **values: Any) -> list[Any]:
        """What ``connection`` is for one statement, with less around it: the hot path."""
        await self._limit.acquire()
        try:
            driver = await self._take()
            try:
                found: list[Any] = await driver.fetch(
                    query.sql, *query.arguments(values), timeout=self._timeout
                )
            except BaseException:
                driver.terminate()
                raise
            if not driver.is_closed():
                self._idle.append(driver)
            return found
        finally:
            self._limit.release()

    async def value(self, query: Query, /, **values: Any) -> Any:
        async with self.connection() as connection:
            return await connection.value(query, **values)

    async def close(self, within: float) -> None:
        """Say goodbye on all of them, for *within* seconds; what is left is cut."""
        with anyio.move_on_after(within, shield=True):
            while self._idle:
                await close(self._idle[-1], within)
                self._idle.pop()
        self.drop_idle()

    def drop_idle(self) -> None:
        """After an outage: the others are dead too."""
        while self._idle:
            self._idle.pop().terminate()

    async def _take(self) -> Driver:
        while self._idle:
            driver = self._idle.pop()
            if not driver.is_closed():
                return driver
        # Shielded: of a connect that is cancelled, asyncpg leaves an error behind for the loop.
        with anyio.fail_after(self._connecting, shield=True):
            return await self._connect()


async def close(driver: Driver, within: float) -> None:
    """Say goodbye, but not for ever: to a server that is silent, close() never returns."""
    try:
        with anyio.CancelScope(shield=True):
            await driver.close(timeout=within)
    except Exception:  # noqa: BLE001 - whatever it raises, the connection is not wanted any more
        driver.terminate()


def connector(database: URL | Engine | AsyncEngine) -> Connect:
    """How to connect: the engine's own way if it uses asyncpg, else by its address.

    The pool's creator holds whatever the user did about connecting: connect_args, a creator,
    do_connect hooks that fetch a token.
    """
    if isinstance(database, AsyncEngine) and database.dialect.driver == "asyncpg":
        return lambda: _prepared(greenlet_spawn(_by_creator, database.sync_engine))
    url = database if isinstance(database, URL) else database.url
    dsn = url.set(drivername="postgresql").render_as_string(hide_password=False)
    return lambda: _prepared(asyncpg.connect(dsn))


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


def _origin(error: BaseException) -> BaseException:
    """What the driver raised, beneath what SQLAlchemy wraps around it."""
    while True:
        if isinstance(error, DBAPIError) and error.orig is not None:
            error = error.orig
        elif type(error).__module__.startswith("sqlalchemy.") and error.__cause__ is not None:
            error = error.__cause__
        else:
            return error


def is_away(error: BaseException) -> bool:
    """True if *error* says that the database could not be asked, not that it said no."""
    if isinstance(error, DBAPIError) and error.connection_invalidated:
        return True
    error = _origin(error)
    if isinstance(error, (OSError, TimeoutError, asyncpg.InterfaceError)):
        return True
    if isinstance(error, asyncpg.InternalClientError):
        return True
    sqlstate = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    return isinstance(sqlstate, str) and sqlstate.startswith(_AWAY)


def is_passing(error: BaseException) -> bool:
    """True if the same work done again may well succeed at once: serialization failure, deadlock,
    a plan that was cached before a migration."""
    error = _origin(error)
    sqlstate = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    return sqlstate in ("40001", "40P01") or isinstance(
        error, asyncpg.exceptions.InvalidCachedStatementError
    )


def is_database_error(error: BaseException) -> bool:
    """True for whatever the database or the way to it is to blame for: wait, and do it again.
    A pool that handlers have emptied is on that way."""
    known = (DBAPIError, PoolTimeout, asyncpg.PostgresError)
    return is_away(error) or isinstance(error, known) or isinstance(_origin(error), known)


async def swallow(work: Awaitable[object], within: float) -> None:
    """Try something that may fail, for a while."""
    with suppress(Exception), anyio.move_on_after(within, shield=True):
        await work
