"""Statements on recurring events, for operators. All by the primary key, of a table with few
rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import bindparam
from sqlalchemy.types import DateTime, Integer, Text

from ..server.names import quoted
from ..server.timed_text import text
from ..server.times import NOW

if TYPE_CHECKING:
    from sqlalchemy import TextClause

    from ...database.tables import Tables


def registered(tables: Tables) -> TextClause:
    """Up to :limit crons by name: name, last_tick, updated_at. Takes no locks."""
    return text(
        f"""
        SELECT name, last_tick, updated_at FROM {quoted(tables.crons)} ORDER BY name LIMIT :limit
        """
    ).bindparams(bindparam("limit", type_=Integer))


def now() -> TextClause:
    """One row: now, by the database's clock."""
    return text(f"SELECT {NOW} AS now")


def touch(tables: Tables) -> TextClause:
    """Lock the cron :name until the transaction ends, and note that something was done: now, by the
    database's clock. No row: it is not registered; or, unless :seen is NULL, something was done
    with it since that time. ``last_tick``, and so the schedule, stays as it is."""
    return text(
        f"""
        UPDATE {quoted(tables.crons)} SET updated_at = {NOW}
        WHERE name = :name AND (:seen IS NULL OR updated_at = :seen) RETURNING updated_at AS now
        """
    ).bindparams(bindparam("name", type_=Text), bindparam("seen", type_=DateTime(timezone=True)))


def is_registered(tables: Tables) -> TextClause:
    """A row if the cron :name is registered. Takes no locks."""
    return text(f"SELECT 1 AS one FROM {quoted(tables.crons)} WHERE name = :name").bindparams(
        bindparam("name", type_=Text)
    )
