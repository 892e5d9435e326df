"""Statements that delete what has had its time, a bounded number of rows at once.

Each is a transaction of its own, passes by rows that somebody works on, and says how many it
deleted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import bindparam, text
from sqlalchemy.types import BigInteger, Double

from .names import quoted

if TYPE_CHECKING:
    from sqlalchemy import Table, TextClause

    from ..tables import Tables

_LIMIT = bindparam("limit", type_=BigInteger)
_SECONDS = bindparam("seconds", type_=Double)


def expired(table: Table) -> TextClause:
    """Delete :limit rows whose ``expires_at`` is over, the oldest first. The index on it.

    A key that is being taken again this moment is locked by whoever does, and passed by.
    """
    name = quoted(table)
    return text(
        f"""
        WITH gone AS (
            DELETE FROM {name} WHERE ctid = ANY (ARRAY(
                SELECT ctid FROM {name} WHERE expires_at <= clock_timestamp()
                ORDER BY expires_at LIMIT :limit FOR UPDATE SKIP LOCKED
            )) RETURNING 1
        )
        SELECT count(*) FROM gone
        """
    ).bindparams(_LIMIT)


def expired_count(table: Table) -> TextClause:
    """How many rows :limit would be, if there are so many. The index."""
    return text(
        f"SELECT count(*) FROM (SELECT FROM {quoted(table)}"
        " WHERE expires_at <= clock_timestamp() LIMIT :limit) AS expired"
    ).bindparams(_LIMIT)


def old_audit(tables: Tables) -> TextClause:
    """Delete :limit records that are older than :seconds, the oldest first.

    Ids are in the order of the times, nearly: of the first :limit ids those that are old. The
    primary key.
    """
    name = quoted(tables.audit)
    return text(
        f"""
        WITH first AS (
            SELECT id, recorded_at FROM {name} ORDER BY id LIMIT :limit FOR UPDATE SKIP LOCKED
        ), gone AS (
            DELETE FROM {name} WHERE id IN (
                SELECT id FROM first
                WHERE recorded_at < clock_timestamp() - make_interval(secs => :seconds)
            ) RETURNING 1
        )
        SELECT count(*) FROM gone
        """
    ).bindparams(_LIMIT, _SECONDS)


def resolved_dead_letters(tables: Tables) -> TextClause:
    """Of the :limit dead letters above the id :above, delete those that were resolved more than
    :seconds ago. One row: gone, and last (the highest id that was looked at; None: there is none).

    By pages, for those that nobody has resolved stay, however many. So does one whose replay waits:
    its event comes from here. Primary keys.
    """
    name = quoted(tables.dead_letters)
    return text(
        f"""
        WITH page AS (
            SELECT id, resolved_at FROM {name} WHERE id > :above ORDER BY id LIMIT :limit
        ), old AS (
            SELECT id FROM {name} AS l WHERE id IN (
                SELECT id FROM page
                WHERE resolved_at < clock_timestamp() - make_interval(secs => :seconds)
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


def cancelled_deliveries(tables: Tables) -> TextClause:
    """Delete :limit deliveries that were cancelled and whose event, below the id :below, is not in
    the log any more. Of each listener, by the primary key."""
    deliveries = quoted(tables.deliveries)
    return text(
        f"""
        WITH gone AS (
            DELETE FROM {deliveries} WHERE ctid = ANY (ARRAY(
                SELECT d.ctid FROM {quoted(tables.listeners)} AS l
                CROSS JOIN LATERAL (
                    SELECT ctid FROM {deliveries}
                    WHERE listener = l.name AND position < :below AND state = 'cancelled'
                    ORDER BY position LIMIT :limit FOR UPDATE SKIP LOCKED
                ) AS d WHERE l.partition = 0 LIMIT :limit
            )) RETURNING 1
        )
        SELECT count(*) FROM gone
        """
    ).bindparams(_LIMIT, bindparam("below", type_=BigInteger))
