"""Statements that delete expired rows, a bounded number at a time.

Each is a transaction of its own, skips rows that are locked, and returns how many it deleted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import bindparam
from sqlalchemy.types import BigInteger, Double, Text

from ..server.names import log_name, quoted
from ..server.timed_text import text
from ..server.times import NOW

if TYPE_CHECKING:
    from sqlalchemy import Table, TextClause

    from ...database.tables import Tables

_LIMIT = bindparam("limit", type_=BigInteger)
_SECONDS = bindparam("seconds", type_=Double)


def expired(table: Table) -> TextClause:
    """Delete :limit rows whose ``expires_at`` has passed, oldest first. Uses its index.

    A key that is being claimed again right now is locked by that transaction, and skipped.
    """
    name = quoted(table)
    return text(
        f"""
        WITH gone AS (
            DELETE FROM {name} WHERE ctid = ANY (ARRAY(
                SELECT ctid FROM {name} WHERE expires_at <= {NOW}
                ORDER BY expires_at LIMIT :limit FOR UPDATE SKIP LOCKED
            )) RETURNING 1
        )
        SELECT count(*) FROM gone
        """
    ).bindparams(_LIMIT)


def expired_count(table: Table) -> TextClause:
    """How many rows have expired, counted up to :limit. Uses the index."""
    return text(
        f"SELECT count(*) FROM (SELECT FROM {quoted(table)}"
        f" WHERE expires_at <= {NOW} LIMIT :limit) AS expired"
    ).bindparams(_LIMIT)


def old_audit(tables: Tables) -> TextClause:
    """Delete :limit records that are older than :seconds, oldest first.

    Ids are nearly in the order of times: of the first :limit ids, those that are old. The primary
    key.
    """
    name = quoted(tables.audit)
    return text(
        f"""
        WITH first AS (
            SELECT id, recorded_at FROM {name} ORDER BY id LIMIT :limit FOR UPDATE SKIP LOCKED
        ), gone AS (
            DELETE FROM {name} WHERE id IN (
                SELECT id FROM first
                WHERE recorded_at < {NOW} - make_interval(secs => :seconds)
            ) RETURNING 1
        )
        SELECT count(*) FROM gone
        """
    ).bindparams(_LIMIT, _SECONDS)


def resolved_dead_letters(tables: Tables) -> TextClause:
    """Of the :limit dead letters above the id :above, delete those that were resolved more than
    :seconds ago. One row: gone, and last (the highest id examined; None: there is none).

    Page by page, because unresolved ones stay, however many there are. So does one whose replay
    waits: its event comes from here. Primary keys.
    """
    name = quoted(tables.dead_letters)
    return text(
        f"""
        WITH page AS (
            SELECT id, resolved_at FROM {name} WHERE id > :above ORDER BY id LIMIT :limit
        ), old AS (
            SELECT id FROM {name} AS l WHERE id IN (
                SELECT id FROM page
                WHERE resolved_at < {NOW} - make_interval(secs => :seconds)
            ) AND resolved_at IS NOT NULL AND NOT EXISTS (
                SELECT FROM {quoted(tables.deliveries)} AS d
                WHERE d.listener = l.listener AND d.position = l.position
                  AND d.dead_letter = l.id
            ) FOR UPDATE SKIP LOCKED
        ), gone AS (
            DELETE FROM {name} WHERE id IN (SELECT id FROM old) RETURNING 1
        )
        SELECT (SELECT count(*) FROM gone) AS gone, (SELECT max(id) FROM page) AS last
        """
    ).bindparams(_LIMIT, _SECONDS, bindparam("above", type_=BigInteger))


def orphans(tables: Tables) -> TextClause:
    """Of the :limit deliveries above (:listener, :position), delete those whose event no longer
    exists: for a replay its dead letter, for all others the row of the log. One row: last_listener
    and last_position (of those examined; None: there are none), and gone (JSON array, lowest
    first): listener, position, key, state.

    A cancelled delivery ends this way when its event expires. For the others the event is lost for
    good: someone deleted it by hand. Not one that is in a range: whoever holds the range settles
    it, or finds nothing in it, and then the range is gone. Primary keys.
    """
    deliveries = quoted(tables.deliveries)
    return text(
        f"""
        WITH page AS MATERIALIZED (
            SELECT listener, position, range, dead_letter FROM {deliveries}
            WHERE (listener, position) > (:listener, :position)
            ORDER BY listener, position LIMIT :limit
        ), orphans AS MATERIALIZED (
            SELECT p.listener, p.position FROM page AS p
            LEFT JOIN LATERAL (
                SELECT true AS there FROM {log_name(tables)}
                WHERE p.dead_letter IS NULL AND id = p.position
                UNION ALL
                SELECT true FROM {quoted(tables.dead_letters)} WHERE id = p.dead_letter
                UNION ALL
                SELECT true FROM {quoted(tables.ranges)}
                WHERE listener = p.listener AND number = p.range
                LIMIT 1
            ) AS event ON true
            WHERE event.there IS NULL
        ), locked AS MATERIALIZED (
            SELECT d.ctid AS row FROM {deliveries} AS d JOIN orphans AS o
              ON d.listener = o.listener AND d.position = o.position
            FOR UPDATE OF d SKIP LOCKED
        ), gone AS (
            DELETE FROM {deliveries} WHERE ctid = ANY (ARRAY(SELECT row FROM locked))
            RETURNING listener, position, key, state
        ), ends AS (
            SELECT listener, position FROM page ORDER BY listener DESC, position DESC LIMIT 1
        )
        SELECT (SELECT listener FROM ends) AS last_listener,
               (SELECT position FROM ends) AS last_position,
               CAST((SELECT coalesce(jsonb_agg(gone ORDER BY listener, position),
                                     CAST('[]' AS jsonb)) FROM gone) AS text) AS gone
        """
    ).bindparams(_LIMIT, bindparam("listener", type_=Text), bindparam("position", type_=BigInteger))
