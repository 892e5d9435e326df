"""Names of tables, quoted, for statements that are text."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlalchemy import Table

    from ...database.names import Names
    from ...database.tables import Tables


def quoted(table: Table) -> str:
    """The table's name with its schema. Both were checked when the settings were created."""
    name = f'"{table.name}"'
    return name if table.schema is None else f'"{table.schema}".{name}'


def log_name(tables: Tables) -> str:
    return quoted(tables.outbox)


def sequence_name(tables: Tables) -> str:
    """The sequence that the log's ids are drawn from, under PostgreSQL's default name."""
    schema, name = tables.outbox.schema, f'"{tables.outbox.name}_id_seq"'
    return name if schema is None else f'"{schema}".{name}'


def table_name(names: Names, suffix: str = "") -> str:
    """A table's name with its schema, without SQLAlchemy: the log, or the table
    ``prefix_suffix``."""
    name = f'"{names.table(suffix)}"'
    return name if names.schema is None else f'"{names.schema}".{name}'
