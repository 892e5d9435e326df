"""Bring the tables to a version."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sa_outbox import migrations
from sa_outbox.errors import ConfigError, SchemaError
from sa_outbox.sql import catalog
from sa_outbox.tables import tables

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from sa_outbox.settings import Names


def migrate(connection: Connection, names: Names, to: int = migrations.LATEST) -> tuple[int, int]:
    """Bring the tables to version *to*; return the version found and the version left behind.

    Runs in the connection's transaction and leaves the commit to the caller: all of it happens,
    or nothing. A second call waits for the first one's commit, then finds nothing to do, so that
    any number of deploys may start at once. Going down to 0 drops the tables and every event.
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
    """The version of the tables by their own account; 0 when there are none."""
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
    """The schema the tables are in, or would be made in; None if ``search_path`` names none."""
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
    if session.isolation != "read committed":
        # The snapshot would be older than the lock: what another deploy just did stays unseen.
        raise ConfigError(
            f"migrate runs in READ COMMITTED, this transaction is {session.isolation.upper()}: "
            'use connection.execution_options(isolation_level="READ COMMITTED")'
        )


def _check_nothing_in_the_way(connection: Connection, names: Names) -> None:
    ours = [table.name for table in tables(names).metadata.tables.values()]
    # Of the schema that gets the new tables, not of one further down the search_path.
    schema = names.schema or connection.scalar(catalog.schema_of([]))
    found = sorted(row.name for row in connection.execute(catalog.relations(schema, ours)))
    if found:
        raise SchemaError(
            f"{', '.join(found)} exist already and {names.table('meta')} does not: they were not "
            "made by sa_outbox; choose another prefix or schema, or rename them"
        )
