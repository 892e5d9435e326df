"""Statements on webhook endpoints. All by the primary key, of a table with few rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import bindparam
from sqlalchemy.types import Integer, Text

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


def shown(tables: Tables) -> TextClause:
    """Up to :limit endpoints by name, or only :name unless that is NULL: name, url, settings (JSON
    as text), disabled_at, disabled_why, created_at, updated_at. Never a secret: a role without the
    right to read those runs it. Takes no locks."""
    return text(
        f"""
        SELECT name, url, CAST(settings AS text) AS settings, disabled_at, disabled_why, created_at,
            updated_at
        FROM {quoted(tables.endpoints)} WHERE :name IS NULL OR name = :name
        ORDER BY name LIMIT :limit
        """
    ).bindparams(bindparam("name", type_=Text), bindparam("limit", type_=Integer))


def one_endpoint(tables: Tables) -> TextClause:
    """The endpoint :name, locked until the transaction ends."""
    return text(f"SELECT {_COLUMNS} FROM {quoted(tables.endpoints)} WHERE name = :name FOR UPDATE")


def revision(tables: Tables) -> TextClause:
    """One row that differs after every change: digest, of each name and who wrote its row last.

    By xmin, not by updated_at: a change that is stamped first may commit last, and then a maximum
    does not move. Written by hand without updated_at, it is noticed, too. Takes no locks."""
    return text(
        f"SELECT md5(string_agg(name || ' ' || CAST(xmin AS text), ',' ORDER BY name)) AS digest"
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


def configure(tables: Tables) -> TextClause:
    """Give :name these :settings."""
    return text(
        f"UPDATE {quoted(tables.endpoints)} SET settings = CAST(:settings AS jsonb),"
        f" updated_at = {NOW} WHERE name = :name RETURNING name"
    )


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
