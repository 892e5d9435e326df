"""Names of tables, quoted, for statements that are text."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlalchemy import Table

    from ..table_names import Names
    from ..tables import Tables


def quoted(table: Table) -> str:
    """The table's name with its schema. Both were checked when the settings were made."""
    name = f'"{table.name}"'
    return name if table.schema is None else f'"{table.schema}".{name}'


def log_name(tables: Tables) -> str:
    return quoted(tables.outbox)


def table_name(names: Names, suffix: str = "") -> str:
    """The same without SQLAlchemy: the log, or the table that is called ``prefix_suffix``."""
    name = f'"{names.table(suffix)}"'
    return name if names.schema is None else f'"{names.schema}".{name}'
