"""Statements on webhook endpoints. All by the primary key, of a table with few rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import bindparam
from sqlalchemy.types import Text

from ..server.names import quoted
from ..server.timed_text import text
from ..server.times import NOW

if TYPE_CHECKING:
    from sqlalchemy import TextClause

    from ...database.tables import Tables

_COLUMNS = (
    "name, url, CAST(settings AS text) AS settings, CAST(secrets AS text) AS secrets, bearer,"
    " disabled_at, disabled_why, created_at"
)


def all_endpoints(tables: Tables) -> TextClause:
    """Every endpoint, by name."""
    return text(f"SELECT {_COLUMNS} FROM {quoted(tables.endpoints)} ORDER BY name")


def one_endpoint(tables: Tables) -> TextClause:
    """The endpoint :name, locked until the transaction ends."""
    return text(f"SELECT {_COLUMNS} FROM {quoted(tables.endpoints)} WHERE name = :name FOR UPDATE")


def revision(tables: Tables) -> TextClause:
    """One row that differs after every change: endpoints (how many), changed_at."""
    return text(
        f"SELECT count(*) AS endpoints, max(updated_at) AS changed_at"
        f" FROM {quoted(tables.endpoints)}"
    )


def add(tables: Tables) -> TextClause:
    """Add an endpoint. No row: the name is taken."""
    return text(
        f"""
        INSERT INTO {quoted(tables.endpoints)} (name, url, settings, secrets, bearer)
        VALUES (:name, :url, CAST(:settings AS jsonb), CAST(:secrets AS jsonb), :bearer)
        ON CONFLICT (name) DO NOTHING RETURNING name
        """
    ).bindparams(bindparam("bearer", type_=Text))


def put(tables: Tables) -> TextClause:
    """Give :name this :url, these :secrets and this :bearer."""
    return text(
        f"""
        UPDATE {quoted(tables.endpoints)}
        SET url = :url, secrets = CAST(:secrets AS jsonb), bearer = :bearer,
            updated_at = {NOW}
        WHERE name = :name RETURNING name
        """
    ).bindparams(bindparam("bearer", type_=Text))


def disable(tables: Tables) -> TextClause:
    """Disable an endpoint. No row: it is already disabled, or does not exist. A consumer runs it
    when an endpoint is gone, and may change only these columns (``rights.DISABLE``)."""
    return text(
        f"UPDATE {quoted(tables.endpoints)} SET disabled_at = {NOW},"
        f" disabled_why = :why, updated_at = {NOW}"
        " WHERE name = :name AND disabled_at IS NULL RETURNING name"
    ).bindparams(bindparam("why", type_=Text))


def enable(tables: Tables) -> TextClause:
    """Enable an endpoint. No row: it is not disabled, or does not exist."""
    return text(
        f"UPDATE {quoted(tables.endpoints)} SET disabled_at = NULL, disabled_why = NULL,"
        f" updated_at = {NOW} WHERE name = :name AND disabled_at IS NOT NULL"
        " RETURNING name"
    )


def remove(tables: Tables) -> TextClause:
    return text(f"DELETE FROM {quoted(tables.endpoints)} WHERE name = :name RETURNING name")
