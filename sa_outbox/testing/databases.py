"""Databases for tests: a template with all tables, and copies of it.

A copy has everything the template has: rows, sequences, whatever the program's migrations made. It
is made in a few dozen milliseconds, and nobody has to know which tables to empty.
"""

from __future__ import annotations

import secrets
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from sqlalchemy import MetaData, create_engine

from sa_outbox import schema
from sa_outbox.errors import ConfigError
from sa_outbox.sql.log import own_events
from sa_outbox.sql.server.databases import copy_database, drop_database

from .loop_thread import in_thread
from .server import administer, at

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import URL, Connection, Engine

    from sa_outbox.outbox import Outbox

    from .server import RunServer

SETTLED_SECONDS = 1.0
"""Seconds that a NOTIFY of the test may take before its database is dropped."""


class Databases:
    """Copies of the template, for one process of the run."""

    def __init__(
        self,
        server: RunServer,
        server_url: str,
        outbox: Outbox,
        create: MetaData | Callable[[Connection], object] | None,
    ) -> None:
        self._server = server
        self._server_url = server_url
        self._outbox = outbox
        self._create = create.create_all if isinstance(create, MetaData) else create
        self._names: set[str] = set()

    def copy(self) -> URL:
        """The address of a new database with all tables, without a driver."""
        template = self._server.template(self._server_url, self._prepare)
        name = f"outbox_{secrets.token_hex(6)}"
        administer(self._server_url, copy_database(name, template))
        self._names.add(name)
        return at(self._server_url, name)

    def drop(self, url: URL) -> None:
        # Else the notifier finds no database, tries again, and warns.
        notifier = sys.modules.get("sa_outbox.producer.notifier")
        if notifier is not None:
            notifier.notifier.settled(SETTLED_SECONDS)
        name = url.database or ""
        administer(self._server_url, drop_database(name))
        self._names.discard(name)

    def drop_all(self) -> None:
        for name in tuple(self._names):
            self.drop(at(self._server_url, name))

    def _prepare(self, url: URL) -> None:
        names = self._outbox.settings.names
        in_thread(lambda: schema.transact(url, lambda connection: self._migrate(connection, names)))

    def _migrate(self, connection: Connection, names: Any) -> None:
        schema.migrate(connection, names)
        if self._create is not None:
            self._create(connection)


def sync_engine(url: URL, **options: Any) -> Engine:
    for driver in ("psycopg", "psycopg2"):
        if find_spec(driver) is not None:
            return create_engine(url.set(drivername=f"postgresql+{driver}"), **options)
    raise ConfigError(
        'a sync engine needs a sync driver: pip install "psycopg[binary]", or use the async '
        "fixtures: outbox_async_session, outbox_async_engine"
    )


def empty(outbox: Outbox, connection: Connection) -> None:
    """Delete all rows of the outbox's tables: events, cursors, dead letters, everything.

    For a database that is kept between tests; no consumer may be running. With an
    ``AsyncConnection``: ``await connection.run_sync(lambda each: empty(outbox, each))``.
    """
    for statement in own_events.empty(outbox.tables):
        connection.execute(statement)
