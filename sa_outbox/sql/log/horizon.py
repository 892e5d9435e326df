"""Statements of the grace period: what is visible, who may still add below it.

In this order: ceiling, holders, then the read. Swapped, or with the read in the same statement as
the holders, events are lost (docs/guarantees.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import bindparam
from sqlalchemy.types import BigInteger, Integer

from ..server.names import log_name, sequence_name
from ..server.timed_text import text
from .holders import holders as named

if TYPE_CHECKING:
    from sqlalchemy import TextClause

    from ...database.tables import Tables


def drawn(tables: Tables) -> str:
    """SQL for the last id that was drawn, 0 if none was.

    A sequence has no snapshots: its current value is read, even by a statement that reads the log
    as of the statement's beginning. So no row that a statement sees has a higher id, unless someone
    chose it. Until ``is_called``, ``last_value`` is the next id.
    """
    last = "CASE WHEN is_called THEN last_value ELSE last_value - 1 END"
    return f"SELECT {last} AS id FROM {sequence_name(tables)}"


def ceiling(tables: Tables) -> TextClause:
    """The highest visible id that was drawn, 0 without one. Locks nothing; primary keys of the
    partitions.

    An explicitly chosen id (``OVERRIDING SYSTEM VALUE``, COPY) says nothing about the ids below it:
    these are still to be drawn. A cursor that followed it would skip them.
    """
    return text(
        f"SELECT coalesce(max(id), 0) AS ceiling FROM {log_name(tables)}"
        f" WHERE id <= ({drawn(tables)})"
    )


def holders(tables: Tables) -> TextClause:
    """The virtual ids of the transactions that hold RowExclusiveLock on the log.

    A writer holds it from before it draws an id until after its commit is visible. Includes
    prepared transactions. Reads no table, and takes no lock on the log.
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


def read(tables: Tables) -> TextClause:
    """Ceiling and holders, in this order: one row with ceiling, newest (the event_id of the
    ceiling, None if there is an id that was not drawn), holders (an array), undrawn: the highest
    visible id if that was not drawn, else None; and known: the event_id that :position has in the
    log (None: there is none).

    A single statement has the right order: the rows are those of its snapshot, taken when it
    begins; then the sequence is read, then the locks. The read of events must be another statement,
    whose snapshot is younger than that.

    The sequence comes before the locks: a chosen id may become the ceiling once the sequence has
    reached it, and then does not prove that those below were drawn before the snapshot. That they
    are at most the sequence's value proves it, if the sequence is read before the locks. For that,
    the query for holders refers to what was read: PostgreSQL can't run it earlier. The log is
    queried a second time only when there is a chosen id.
    """
    log = log_name(tables)
    return text(
        f"""
        SELECT CASE WHEN highest.id IS NULL THEN 0 WHEN highest.id <= drawn.id THEN highest.id
                    ELSE (SELECT coalesce(max(id), 0) FROM {log} WHERE id <= drawn.id) END
                   AS ceiling,
               CASE WHEN highest.id <= drawn.id THEN highest.event_id END AS newest,
               ARRAY({holders(tables).text} AND (drawn.id < 0) IS NOT NULL) AS holders,
               CASE WHEN highest.id > drawn.id THEN highest.id END AS undrawn,
               (SELECT event_id FROM {log} WHERE id = :position) AS known
        FROM ({drawn(tables)}) AS drawn
        LEFT JOIN (SELECT id, event_id FROM {log} ORDER BY id DESC LIMIT 1) AS highest ON true
        """
    ).bindparams(bindparam("position", type_=BigInteger))


def last_drawn(tables: Tables) -> TextClause:
    """The last id that was drawn, 0 if none was."""
    return text(drawn(tables))


def undrawn(tables: Tables) -> TextClause:
    """One row: first, last and count of the visible ids above the last drawn one, of the first
    :most of them. Primary keys."""
    return text(
        f"""
        SELECT min(id) AS first, max(id) AS last, count(*) AS count
        FROM (SELECT id FROM {log_name(tables)} WHERE id > ({drawn(tables)})
              ORDER BY id LIMIT :most) AS few
        """
    ).bindparams(bindparam("most", type_=Integer))


def holders_named(tables: Tables) -> TextClause:
    """The transactions that hold RowExclusiveLock on the log, and their sessions."""
    return text(named(tables.names))


def holes(tables: Tables) -> TextClause:
    """The ranges (lo, hi) of ids up to :ceiling that are not visible, one row each.

    For a listener that starts now: an event below the ceiling may still be uncommitted. Reads the
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
    """The lowest id that was drawn and written at or after :time, None if there is none. A scan of
    the log."""
    return text(
        f"SELECT min(id) FROM {log_name(tables)}"
        f" WHERE created_at >= :time AND id <= ({drawn(tables)})"
    )
