"""Bring the tables to a version."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sa_outbox import migrations
from sa_outbox.database.tables import tables
from sa_outbox.errors import ConfigError, SchemaError
from sa_outbox.sql.server import catalog

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from sa_outbox.settings import Names


ENCODING = "UTF8"
ONLY_UTF8 = (
    "an outbox needs UTF8, for events are JSON. An encoding can't be changed: CREATE DATABASE ... "
    "ENCODING 'UTF8' TEMPLATE template0, and restore a dump of this one there"
)


def migrate(connection: Connection, names: Names, to: int = migrations.LATEST) -> tuple[int, int]:
    """Bring the tables to version *to*; return the versions before and after.

    Runs in the connection's transaction and leaves the commit to the caller: all of it happens, or
    nothing. A second call waits for the first one's commit and then finds nothing to do, so any
    number of deploys may start at once. Going down to 0 drops the tables and every event.
    """
    _check_session(connection)
    connection.execute(catalog.take_migration_lock())
    if not connection.scalar(catalog.migration_lock_held()):
        raise ConfigError("migrate needs a transaction, and this connection is in AUTOCOMMIT")
    since = version(connection, names)
    if since > migrations.LATEST:
        raise SchemaError(
            f"the tables have version {since}, this release of sa_outbox knows up to "
            f"{migrations.LATEST}: update sa_outbox"
        )
    steps = migrations.statements(since=since, to=to, schema=names.schema, prefix=names.prefix)
    if since == 0:
        _check_nothing_in_the_way(connection, names)
    for statement in steps:
        connection.exec_driver_sql(statement)
    return since, to


def version(connection: Connection, names: Names) -> int:
    """The version the tables claim to have; 0 when there are none."""
    found = connection.execute(
        catalog.relations(home(connection, names), [names.table("meta")])
    ).first()
    if found is None:
        return 0
    if "schema_version" not in found.columns:
        raise SchemaError(
            f"{names.table('meta')} is not a table of sa_outbox: choose another prefix or schema"
        )
    row = connection.execute(catalog.version(tables(names))).first()
    if row is None:
        raise SchemaError(f"{names.table('meta')} has lost its one row: restore it from a backup")
    found_version: int = row.schema_version
    return found_version


def home(connection: Connection, names: Names) -> str | None:
    """The schema the tables are in, or would be created in; None if ``search_path`` names none."""
    if names.schema is not None:
        return names.schema
    candidates = [names.table("meta"), names.table()]
    found: str | None = connection.scalar(catalog.schema_of(candidates))
    return found


def _check_session(connection: Connection) -> None:
    session = connection.execute(catalog.this_session()).one()
    if session.in_recovery or session.read_only:
        raise SchemaError(
            f"database {session.database!r} is read-only here"
            + (": the server is a standby, connect to the primary" if session.in_recovery else "")
        )
    if session.encoding != ENCODING:
        raise SchemaError(
            f"database {session.database!r} has the encoding {session.encoding}: {ONLY_UTF8}"
        )
    if session.isolation != "read committed":
        # The snapshot would be older than the lock and miss what another deploy just did.
        raise ConfigError(
            f"migrate runs in READ COMMITTED, this transaction is {session.isolation.upper()}: "
            'use connection.execution_options(isolation_level="READ COMMITTED")'
        )


def _check_nothing_in_the_way(connection: Connection, names: Names) -> None:
    ours = tables(names).relation_names
    # Check the schema that gets the new tables, not one further down the search_path.
    schema = names.schema or connection.scalar(catalog.schema_of([]))
    found = sorted(row.name for row in connection.execute(catalog.relations(schema, ours)))
    if found:
        raise SchemaError(
            f"{', '.join(found)} already exist and {names.table('meta')} does not: they were not "
            "made by sa_outbox; choose another prefix or schema, or rename them"
        )
