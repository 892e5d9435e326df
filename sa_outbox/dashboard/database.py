"""The database a dashboard asks: an engine that was given, or one that is made when first needed.

A mounted application is not told when the program around it starts and ends; so nothing is opened
before somebody looks, and ``Dashboard.close`` is there for whoever wants to end it properly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Concatenate, Final, ParamSpec, TypeVar

from sqlalchemy.ext.asyncio import AsyncEngine

from sa_outbox.consumer.engines import engines
from sa_outbox.sql.patience import patience

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import URL, Connection, Engine

    from sa_outbox.consumer.engines import Engines
    from sa_outbox.tables import Tables

P = ParamSpec("P")
T = TypeVar("T")

SECONDS: Final = 15.0
"""Longest a statement of a page takes: a search that finds little in a long log."""


class Database:
    """Runs operations, each in a transaction of its own."""

    def __init__(self, given: str | URL | Engine | AsyncEngine, tables: Tables) -> None:
        self._given = given
        self._tables = tables
        self._engines: Engines | None = None
        if not isinstance(given, AsyncEngine):
            self._engine()  # a wrong address is told now; it opens nothing

    async def read(
        self,
        operation: Callable[Concatenate[Connection, Tables, P], T],
        *args: P.args,
        **options: P.kwargs,
    ) -> T:
        """What *operation* returns, of one moment, in a transaction that can't write."""
        options_of_reading = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
        async with self._engine().connect() as opened:
            connection = await opened.execution_options(**options_of_reading)
            await connection.execute(patience(), {"seconds": SECONDS})
            return await connection.run_sync(operation, self._tables, *args, **options)

    async def write(
        self,
        operation: Callable[Concatenate[Connection, Tables, P], T],
        *args: P.args,
        **options: P.kwargs,
    ) -> T:
        """The same, and commit: all of it or nothing, whatever the engine is set to."""
        async with self._engine().connect() as opened:
            connection = await opened.execution_options(isolation_level="READ COMMITTED")
            async with connection.begin():
                await connection.execute(patience(), {"seconds": SECONDS})
                return await connection.run_sync(operation, self._tables, *args, **options)

    async def close(self) -> None:
        """Dispose of what was made here, not of what was given."""
        made, self._engines = self._engines, None
        if made is not None:
            await made.dispose()

    def _engine(self) -> AsyncEngine:
        if self._engines is None:
            self._engines = engines(self._given, None, ())
        return self._engines.asynchronous
