"""Alembic's environment for this repository alone: the tables of sa_outbox and nothing else.

``outbox_meta`` is the truth about the version, whichever way the tables were made. So before
anything runs, Alembic's own version table is brought in line with it: tables made by
``sa-outbox migrate`` can be taken over here, and the other way round.

There is no ``__init__.py`` beside this file: it would hide the real alembic.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from alembic import context
from alembic.script import ScriptDirectory

from sa_outbox import migrations, schema
from sa_outbox.database.tables import tables
from sa_outbox.migrations.v0001 import create_schema
from sa_outbox.settings import Names
from sa_outbox.sql.server import catalog

if TYPE_CHECKING:
    from sqlalchemy import Connection

arguments = context.get_x_argument(as_dictionary=True)
names = Names(
    schema=arguments.get("schema") or os.environ.get("SA_OUTBOX_SCHEMA") or None,
    prefix=arguments.get("prefix") or os.environ.get("SA_OUTBOX_PREFIX") or "outbox",
)
context.config.attributes["names"] = names  # read by the revisions
metadata = tables(names).metadata


def only_ours(name: str | None, type_: str, _parents: object) -> bool:
    """For `alembic check`: partitions, and what else is in the database, are not its business."""
    if type_ == "schema":
        return name == names.schema
    return type_ != "table" or name in {table.name for table in metadata.tables.values()}


options: dict[str, Any] = {
    "target_metadata": metadata,
    "include_name": only_ours,
    "version_table": names.table("alembic_version"),
    "version_table_schema": names.schema,
    "include_schemas": names.schema is not None,
}


def offline() -> None:
    context.configure(dialect_name="postgresql", literal_binds=True, **options)
    with context.begin_transaction():
        for statement in create_schema(names.schema):
            context.execute(statement)  # the version table is made before the first revision
        context.run_migrations()


def online(connection: Connection) -> None:
    connection.execute(catalog.take_migration_lock())
    for statement in create_schema(names.schema):
        connection.exec_driver_sql(statement)
    context.configure(connection=connection, **options)
    follow_the_tables(schema.version(connection, names))
    with context.begin_transaction():
        context.run_migrations()


def follow_the_tables(version: int) -> None:
    """Have Alembic's version table say what ``outbox_meta`` says."""
    if version > migrations.LATEST:
        raise SystemExit(f"the tables have version {version}: update sa_outbox")
    here = f"{version:04d}" if version else None
    migration = context.get_context()
    if migration.get_current_revision() != here:
        migration.stamp(ScriptDirectory.from_config(context.config), here or "base")


def database_url() -> str:
    for url in (
        arguments.get("url"),
        os.environ.get("SA_OUTBOX_DATABASE_URL"),
        os.environ.get("DATABASE_URL"),
    ):
        if url:
            return url
    raise SystemExit("which database? Set SA_OUTBOX_DATABASE_URL, or say: alembic -x url=...")


if context.is_offline_mode():
    offline()
else:
    schema.transact(database_url(), online)
