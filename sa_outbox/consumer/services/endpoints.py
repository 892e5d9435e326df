"""The webhook endpoints that a consumer serves: read at its start, and watched for changes.

A change of the table stops all listeners gracefully and starts them again with the new endpoints:
rare, and it needs no code of its own for starting and stopping some of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
from anyio import TASK_STATUS_IGNORED
from sqlalchemy.exc import DBAPIError

from sa_outbox.errors import ConfigError
from sa_outbox.observe import DatabaseAway, DatabaseBack, EndpointDisabled, EndpointLeftOut, Place
from sa_outbox.operations.endpoint import PREFIX, endpoint_of
from sa_outbox.operations.endpoints import disable_endpoint
from sa_outbox.operations.operator import Operator
from sa_outbox.sql.listener import endpoints as sql

from ..connection.errors import is_database_error

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from anyio.abc import TaskStatus
    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncEngine

    from sa_outbox.database.tables import Tables
    from sa_outbox.declare.listener import Listener
    from sa_outbox.observe import Observers
    from sa_outbox.outbox import Outbox

REFRESH_SECONDS = 5.0
RETRY_SECONDS = 1.0
ANSWER_SECONDS = 5.0
"""Seconds to wait for the answer whether something has changed."""
PLACE = Place("endpoints")
NOT_THERE, NOT_PERMITTED = "42P01", "42501"


class EndpointWatcher:
    """Runs until the table of endpoints was changed, or it is cancelled."""

    def __init__(self, endpoints: Endpoints, changed: Callable[[], None]) -> None:
        self._endpoints = endpoints
        self._changed = changed

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        task_status.started()
        await self._endpoints.changed()
        self._changed()


class Endpoints:
    def __init__(
        self, outbox: Outbox, tables: Tables, engine: AsyncEngine, observers: Observers
    ) -> None:
        self._outbox = outbox
        self._tables = tables
        self._engine = engine
        self._observers = observers
        self._revision: object = None
        self.listeners: Sequence[Listener] = ()
        self.names: Sequence[str] = ()
        """Those of all endpoints' listeners, including disabled ones: they are not orphans."""

    async def read(self) -> None:
        """Read the endpoints that exist now into ``listeners``."""
        async with self._engine.connect() as connection:
            self._revision, rows = await connection.run_sync(self._read)
        self.names = [PREFIX + row["name"] for row in rows]
        served = [self._listener(row) for row in rows if row["disabled_at"] is None]
        self.listeners = [each for each in served if each is not None]

    async def read_again(self, stopped: anyio.Event) -> None:
        """Read the endpoints, retrying until the database answers, or until *stopped*."""
        away = False
        while not stopped.is_set():
            try:
                await self.read()
            except Exception as error:
                if not is_database_error(error):
                    raise
                away = True
                self._observers.emit(DatabaseAway(PLACE, type(error).__name__, RETRY_SECONDS))
            else:
                if away:
                    self._observers.emit(DatabaseBack(PLACE))
                return
            with anyio.move_on_after(RETRY_SECONDS):
                await stopped.wait()

    async def changed(self) -> None:
        """Return when something has changed since it was read."""
        while True:
            await anyio.sleep(REFRESH_SECONDS)
            try:
                if await self._current() != self._revision:
                    return
            except Exception as error:
                if not is_database_error(error):
                    raise

    async def _current(self) -> object:
        # Shielded: if it were cancelled midway, the engine's pool would log an error.
        with anyio.fail_after(ANSWER_SECONDS, shield=True):
            async with self._engine.connect() as connection:
                return await connection.run_sync(self._read_revision)

    def _read(self, connection: Connection) -> tuple[object, list[Any]]:
        tables = self._tables
        try:
            revision = self._read_revision(connection)  # first: a change after it is noticed later
            return revision, list(connection.execute(sql.all_endpoints(tables)).mappings())
        except DBAPIError as error:
            if getattr(error.orig, "sqlstate", None) not in (NOT_THERE, NOT_PERMITTED):
                raise
            return None, []  # verify() reports it, and how to fix it

    def _read_revision(self, connection: Connection) -> object:
        return tuple(connection.execute(sql.revision(self._tables)).one())

    def _listener(self, row: Any) -> Listener | None:
        from sa_outbox.relay.endpoints import endpoint_listener  # noqa: PLC0415 - needs an extra

        name: str = row["name"]

        async def gone(why: str) -> None:
            await self._disable(name, why)

        try:
            endpoint = endpoint_of(row)
            return endpoint_listener(endpoint, self._outbox.settings, self._outbox.endpoints, gone)
        except ConfigError as error:
            # The others are served.
            self._observers.emit(EndpointLeftOut(name, str(error)))
            return None

    async def _disable(self, name: str, why: str) -> None:
        operator = Operator(who="sa_outbox", why=why)
        tables, channel = self._tables, self._outbox.settings.names.notify_channel

        def disable(connection: Connection) -> bool:
            return disable_endpoint(connection, tables, name, operator, channel=channel)

        async with self._engine.begin() as connection:
            if await connection.run_sync(disable):
                self._observers.emit(EndpointDisabled(name, why))
