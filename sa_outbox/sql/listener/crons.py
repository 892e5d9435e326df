"""Statements on recurring events: which tick of each was the last to get its event.

All times are the database's clock, so that processes whose clocks are wrong agree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import bindparam
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.types import DateTime, Text

from ..server.names import quoted
from ..server.timed_text import text
from ..server.times import NOW

if TYPE_CHECKING:
    from sqlalchemy import TextClause

    from ...database.tables import Tables


def standing(tables: Tables) -> TextClause:
    """A row for each of :names: name, last_tick (None for one that is not registered), now.

    Takes no locks. Primary key.
    """
    return text(
        f"""
        SELECT wanted.name, c.last_tick, {NOW} AS now
        FROM unnest(:names) AS wanted (name)
        LEFT JOIN {quoted(tables.crons)} AS c ON c.name = wanted.name
        """
    ).bindparams(bindparam("names", type_=ARRAY(Text)))


def register(tables: Tables) -> TextClause:
    """Register those of :names that are new to the database, starting with their next tick. No
    rows.

    Waits for a transaction that registers one of them; in order of name, so that two can't
    deadlock.
    """
    return text(
        f"""
        INSERT INTO {quoted(tables.crons)} (name, last_tick)
        SELECT name, {NOW} FROM unnest(:names) AS unknown (name) ORDER BY name
        ON CONFLICT (name) DO NOTHING
        """
    ).bindparams(bindparam("names", type_=ARRAY(Text)))


def claim(tables: Tables) -> TextClause:
    """Lock the row of :name until the transaction ends: last_tick, now. No row if it has none.

    A second caller waits, and sees what the first has written. If this process is suspended in the
    middle, the server ends the transaction after :patience (``30s``): otherwise the others would
    wait forever. Primary key.
    """
    return text(
        f"""
        SELECT last_tick, {NOW} AS now,
            set_config('idle_in_transaction_session_timeout', :patience, true)
        FROM {quoted(tables.crons)} WHERE name = :name FOR UPDATE
        """
    ).bindparams(bindparam("name", type_=Text), bindparam("patience", type_=Text))


def advance(tables: Tables) -> TextClause:
    """Record that :name has its events up to :tick. It never goes back. No rows."""
    return text(
        f"""
        UPDATE {quoted(tables.crons)} SET last_tick = :tick, updated_at = {NOW}
        WHERE name = :name AND last_tick < :tick
        """
    ).bindparams(
        bindparam("name", type_=Text),
        bindparam("tick", type_=DateTime(timezone=True)),
    )
