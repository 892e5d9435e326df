"""The consumer's own connections: bare asyncpg, apart from the pool that handlers use.

Apart, so that handlers that use up every connection can't keep a cursor from moving. Bare, because
reading is the hot path. Autocommit unless ``transaction`` is used.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias
from weakref import WeakKeyDictionary

import anyio
from sqlalchemy.dialects.postgresql import asyncpg as asyncpg_dialect

from sa_outbox.clock import clock
from sa_outbox.sql.server.transactions import COMMIT, PING, ROLLBACK, begin

from .errors import Doubted, is_unreachable

if TYPE_CHECKING:
    from sqlalchemy import Insert, Select, TextClause

    from sa_outbox.settings import ConsumerSettings

Driver: TypeAlias = Any  # asyncpg.Connection, which has no types
Connect: TypeAlias = Callable[[], Awaitable[Driver]]

_DIALECT = asyncpg_dialect.dialect()  # type: ignore[no-untyped-call]  # SQLAlchemy's, untyped
PROBES, PROBE_SECONDS = 4, 0.15
"""How often, and seconds before each time, we check our connections: a crashing server ends them
within a moment."""


class Query:
    """A statement from ``sql/``, rendered for asyncpg once."""

    __slots__ = ("_defaults", "_names", "clause", "sql")

    def __init__(self, clause: TextClause | Select[Any] | Insert) -> None:
        compiled: Any = clause.compile(dialect=_DIALECT)
        self.clause: TextClause | Select[Any] | Insert = clause
        self.sql: str = compiled.string
        self._names: list[str] = list(compiled.positiontup or ())
        self._defaults: dict[str, Any] = {**compiled.params, "now": None}  # the server's clock

    def arguments(self, values: dict[str, Any]) -> list[Any]:
        if clock.is_moved:
            values = {"now": clock.now(), **values}
        defaults = self._defaults
        return [values[name] if name in values else defaults[name] for name in self._names]


class Asked(Protocol):
    """Anything that answers a statement with rows."""

    async def rows(self, query: Query, /, **values: Any) -> list[Any]: ...


class Lending(Protocol):
    """Anything that lends a connection."""

    def connection(self) -> AbstractAsyncContextManager[Asked]: ...


class Remembering(Protocol):
    @property
    def era(self) -> int:
        """How often it was in doubt whether the database still is what it was."""
        ...


class Steady:
    """Everything that is asked through it is answered by the history of the moment at which it was
    made: ``lease/continuity.py``."""

    __slots__ = ("_connections", "_era", "_memory")

    def __init__(self, connections: Lending, memory: Remembering) -> None:
        self._connections = connections
        self._memory = memory
        self._era = memory.era

    @property
    def holds(self) -> bool:
        """No connection has ended since."""
        return self._memory.era == self._era

    async def rows(self, query: Query, /, **values: Any) -> list[Any]:
        """Raises :class:`Doubted`."""
        found: list[Any] = []
        if self.holds:
            async with self._connections.connection() as connection:
                # Once more: the connection may have had to be opened, to another server.
                if self.holds:
                    found = await connection.rows(query, **values)
        if not self.holds:
            raise Doubted(found)
        return found


class Connection:
    """One connection, borrowed for the moment."""

    __slots__ = ("_begin", "driver", "timeout")

    def __init__(self, driver: Driver, timeout: float, begin: str) -> None:
        self.driver: Driver = driver
        self.timeout: float = timeout
        self._begin = begin

    async def rows(self, query: Query, /, **values: Any) -> list[Any]:
        fetch = self.driver.fetch
        found: list[Any] = await fetch(query.sql, *query.arguments(values), timeout=self.timeout)
        return found

    async def count(self, query: Query, /, **values: Any) -> int:
        """Run a statement that writes rows and returns none; how many it has written."""
        arguments = query.arguments(values)
        status = await self.driver.execute(query.sql, *arguments, timeout=self.timeout)
        return int(status.rpartition(" ")[2])  # "INSERT 0 3"

    async def value(self, query: Query, /, **values: Any) -> Any:
        return await self.driver.fetchval(query.sql, *query.arguments(values), timeout=self.timeout)

    async def run(self, query: Query, /) -> None:
        """Run a statement that returns nothing and should not be cached: DDL."""
        await self.driver.execute(query.sql, timeout=self.timeout)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """Commits at the end. If this process is suspended in the middle, the server ends it."""
        execute = self.driver.execute
        await execute(self._begin, timeout=self.timeout)
        try:
            yield
        except BaseException:
            # The connection is discarded anyway; a rollback frees the locks sooner.
            with suppress(Exception):
                await execute(ROLLBACK, timeout=self.timeout)
            raise
        await execute(COMMIT, timeout=self.timeout)


class Connections:
    """A few connections, opened on demand and kept open."""

    def __init__(
        self,
        connect: Connect,
        *,
        most: int,
        timeout: float,
        connecting: float,
        patience: float,
        broken: Callable[[], None] = lambda: None,
    ) -> None:
        """*patience*: how long the server lets a transaction idle. *broken* is called when a
        connection ended and we did not end it: the server may be gone, and come back as a different
        one."""
        self._connect = connect
        self._begin = begin(patience)
        # Fast: a limiter that yields each time costs one turn of the loop per statement.
        self._limit = anyio.Semaphore(most, fast_acquire=True)
        self._idle: list[Driver] = []
        self._made_at: WeakKeyDictionary[Driver, float] = WeakKeyDictionary()
        self._timeout = timeout
        self._connecting = connecting
        self._broken = broken

    @classmethod
    def of(
        cls, connect: Connect, settings: ConsumerSettings, *, most: int, **options: Any
    ) -> Connections:
        return cls(
            connect,
            most=most,
            **options,
            timeout=settings.statement_timeout.total_seconds(),
            connecting=settings.probe_timeout.total_seconds(),
            patience=settings.lease_duration.total_seconds(),
        )

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """A connection; after any error it is discarded, since it may be in any state."""
        async with self._limit:
            driver = await self._take()
            try:
                yield Connection(driver, self._timeout, self._begin)
            except BaseException as error:
                self._discard(driver, error)
                raise
            if not driver.is_closed():
                self._idle.append(driver)

    async def rows(self, query: Query, /, **values: Any) -> list[Any]:
        """Run one statement. Does what ``connection`` does with less overhead: the hot path."""
        await self._limit.acquire()
        try:
            driver = await self._take()
            try:
                found: list[Any] = await driver.fetch(
                    query.sql, *query.arguments(values), timeout=self._timeout
                )
            except BaseException as error:
                self._discard(driver, error)
                raise
            if not driver.is_closed():
                self._idle.append(driver)
            return found
        finally:
            self._limit.release()

    async def value(self, query: Query, /, **values: Any) -> Any:
        async with self.connection() as connection:
            return await connection.value(query, **values)

    async def lived_through(self, moment: float) -> bool:
        """Whether the server has been up since *moment*: an older connection still answers. False
        also if that can't be determined."""
        with anyio.move_on_after(self._connecting):
            for _ in range(PROBES):
                await anyio.sleep(PROBE_SECONDS)
                async with self._limit:
                    older = [each for each in self._idle if self._made_at[each] < moment]
                    if older:
                        return await self._answers(older[-1])
        return False

    async def _answers(self, driver: Driver) -> bool:
        self._idle.remove(driver)
        try:
            await driver.execute(PING, timeout=self._connecting)
        except BaseException as error:
            driver.terminate()
            if not isinstance(error, Exception):
                raise
            return False
        self._idle.append(driver)
        return True

    async def close(self, within: float) -> None:
        """Close all of them properly within *within* seconds; the rest is cut."""
        with anyio.move_on_after(within, shield=True):
            while self._idle:
                self._idle[-1].remove_termination_listener(self._ended)
                await close(self._idle[-1], within)
                self._idle.pop()
        self.drop_idle()

    def drop_idle(self) -> None:
        """After an outage: the other idle connections are dead too."""
        while self._idle:
            self._cut(self._idle.pop())

    def _ended(self, _driver: Driver) -> None:
        self._broken()

    def _cut(self, driver: Driver) -> None:
        driver.remove_termination_listener(self._ended)
        driver.terminate()

    def _discard(self, driver: Driver, error: BaseException) -> None:
        """Cut a connection that was in use when *error* was raised. One that is cut because its
        user was cancelled, or because the server refused, says nothing about the server."""
        has_ended = driver.is_closed()
        self._cut(driver)
        if has_ended or (isinstance(error, Exception) and is_unreachable(error)):
            self._broken()

    async def _take(self) -> Driver:
        while self._idle:
            driver = self._idle.pop()
            if not driver.is_closed():
                return driver
            self._discard(driver, ConnectionError())  # its end was not noticed yet
        # Shielded: asyncpg leaves an unretrieved error in the loop when a connect is cancelled.
        with anyio.fail_after(self._connecting, shield=True):
            driver = await self._connect()
        self._made_at[driver] = monotonic()
        driver.add_termination_listener(self._ended)
        return driver


async def close(driver: Driver, within: float) -> None:
    """Close properly, but not forever: if the server is silent, close() never returns."""
    try:
        with anyio.CancelScope(shield=True):
            await driver.close(timeout=within)
    except Exception:  # noqa: BLE001 - whatever it raises, the connection is discarded
        driver.terminate()


async def best_effort(work: Awaitable[object], within: float) -> None:
    """Await *work* for at most *within* seconds and ignore its failure."""
    with suppress(Exception), anyio.move_on_after(within, shield=True):
        await work
