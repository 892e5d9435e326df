"""The dashboard's database: a given engine, or one that is created on first use.

A mounted application does not learn when the surrounding program starts and ends. So nothing is
opened before the first request, and ``Dashboard.close`` exists for programs that want to shut down
properly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Concatenate, Final, ParamSpec, TypeVar

from sqlalchemy.ext.asyncio import AsyncEngine

from sa_outbox.consumer.connection.engines import engines
from sa_outbox.sql.server.patience import patience

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import URL, Connection, Engine

    from sa_outbox.consumer.connection.engines import Engines
    from sa_outbox.database.tables import Tables

P = ParamSpec("P")
T = TypeVar("T")

STATEMENT_SECONDS: Final = 15.0
"""Maximum duration of a page's statement: a search that finds little in a long log."""


class Database:
    """Runs operations, each in a transaction of its own."""

    def __init__(self, given: str | URL | Engine | AsyncEngine, tables: Tables) -> None:
        self._given = given
        self._tables = tables
        self._engines: Engines | None = None
        if not isinstance(given, AsyncEngine):
            self._engine()  # an invalid URL fails now; it opens nothing

    async def read(
        self,
        operation: Callable[Concatenate[Connection, Tables, P], T],
        *args: P.args,
        **options: P.kwargs,
    ) -> T:
        """Run *operation* on one snapshot, in a read-only transaction, and return its result."""
        options_of_reading = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
        async with self._engine().connect() as opened:
            connection = await opened.execution_options(**options_of_reading)
            await connection.execute(patience(), {"seconds": STATEMENT_SECONDS})
            return await connection.run_sync(operation, self._tables, *args, **options)

    async def write(
        self,
        operation: Callable[Concatenate[Connection, Tables, P], T],
        *args: P.args,
        **options: P.kwargs,
    ) -> T:
        """Run *operation* and commit: all of it or nothing, whatever the engine is set to."""
        async with self._engine().connect() as opened:
            connection = await opened.execution_options(isolation_level="READ COMMITTED")
            async with connection.begin():
                await connection.execute(patience(), {"seconds": STATEMENT_SECONDS})
                return await connection.run_sync(operation, self._tables, *args, **options)

    async def close(self) -> None:
        """Dispose of the engine if it was created here."""
        made, self._engines = self._engines, None
        if made is not None:
            await made.dispose()

    def _engine(self) -> AsyncEngine:
        if self._engines is None:
            self._engines = engines(self._given, None, ())
        return self._engines.asynchronous
