"""Statements of the grace period: what is visible, who may still add below it.

In this order: ceiling, holders, then the read. Swapped, or with the read in the same statement as
the holders, events are lost (docs/guarantees.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

from .names import log_name
from .overview import clause
from .overview import holders as named

if TYPE_CHECKING:
    from sqlalchemy import TextClause

    from ..tables import Tables


def ceiling(tables: Tables) -> TextClause:
    """The highest visible id, 0 for an empty log. Locks nothing; primary keys of the partitions."""
    return text(f"SELECT coalesce(max(id), 0) FROM {log_name(tables)}")


def holders(tables: Tables) -> TextClause:
    """The virtual ids of the transactions that hold RowExclusiveLock on the log.

    A writer holds it from before it draws an id until after its commit is visible. A prepared
    transaction is among them. No table is read, and no lock of the log is taken.
    """
    return text(
        f"""
        SELECT virtualtransaction FROM pg_catalog.pg_locks
        WHERE locktype = 'relation' AND relation = CAST('{log_name(tables)}' AS regclass)
          AND database = (SELECT oid FROM pg_catalog.pg_database
                          WHERE datname = current_database())
          AND mode = 'RowExclusiveLock' AND granted
        """
    )


def look(tables: Tables) -> TextClause:
    """Both, in this order: one row with ceiling and holders (an array).

    One statement is in the right order by itself: the ceiling is that of its snapshot, taken when
    it begins, and the locks are looked at while it runs. The read must be another one, whose
    snapshot is younger than that.
    """
    return text(
        f"SELECT ({ceiling(tables).text}) AS ceiling, ARRAY({holders(tables).text}) AS holders"
    )


def holders_named(tables: Tables) -> TextClause:
    """The same with who they are: as the overview tells it."""
    return clause(named(tables.names))


def holes(tables: Tables) -> TextClause:
    """The ranges (lo, hi) of ids up to :ceiling that are not visible, in one row each.

    For a listener that starts now: an event below the ceiling may still be on its way. Reads the
    whole retained primary key, once in a listener's life.
    """
    return text(
        f"""
        SELECT lo, hi FROM (
            SELECT lag(id, 1, CAST(0 AS bigint)) OVER (ORDER BY id) + 1 AS lo, id - 1 AS hi
            FROM {log_name(tables)} WHERE id <= :ceiling
        ) AS ranges WHERE lo <= hi ORDER BY lo
        """
    )


def first_since(tables: Tables) -> TextClause:
    """The lowest id written at or after :time, None if there is none. A scan of the log."""
    return text(f"SELECT min(id) FROM {log_name(tables)} WHERE created_at >= :time")
