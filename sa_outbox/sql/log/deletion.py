"""Delete single events of the log: those of a partition that can't be dropped as a whole yet.

Rows are deleted from the partition, not through the log: readers of the horizon check locks on the
log, so a deletion does not look like a writer. docs/retention.md has the argument.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import bindparam
from sqlalchemy.types import BigInteger, Double

from ..server.names import quoted
from ..server.timed_text import text
from ..server.times import NOW
from .partitions import beside

if TYPE_CHECKING:
    from sqlalchemy import TextClause

    from ...database.tables import Tables

_SECONDS = bindparam("seconds", type_=Double)
_ABOVE = bindparam("above", type_=BigInteger)
_LIMIT = bindparam("limit", type_=BigInteger)
_OLD = f"created_at < {NOW} - make_interval(secs => :seconds)"


def oldest(tables: Tables, name: str) -> TextClause:
    """Seconds since the first event of this partition was written; None if it is empty. Its
    primary key."""
    return text(
        f"""
        SELECT CAST(extract(epoch FROM {NOW} - created_at) AS float8)
        FROM {beside(tables, name)} ORDER BY id LIMIT 1
        """
    )


def trim(tables: Tables, name: str) -> TextClause:
    """Of the first :limit events above the id :above, delete those that are older than :seconds and
    not needed. One row: gone, examined (how many were), old (how many of these), last (the
    highest id of these).

    Only below every cursor, every gap and every range: nothing can still appear there, and what is
    above keeps the ceiling where open gaps need it. An event with a waiting delivery stays. Run it
    in a transaction that runs nothing else. Skips locked events. Primary keys.
    """
    partition = beside(tables, name)
    return text(
        f"""
        WITH {_chosen(tables, partition, "FOR UPDATE SKIP LOCKED")}, gone AS (
            DELETE FROM {partition} WHERE ctid = ANY (ARRAY(SELECT row FROM chosen)) RETURNING 1
        )
        SELECT (SELECT count(*) FROM gone) AS gone, count(*) AS examined,
               count(*) FILTER (WHERE old) AS old, max(id) AS last FROM page
        """
    ).bindparams(_SECONDS, _ABOVE, _LIMIT)


def trimmable(tables: Tables, name: str) -> TextClause:
    """How many of the first :limit events above :above ``trim`` would delete. Locks nothing."""
    chosen = _chosen(tables, beside(tables, name), "")
    return text(f"WITH {chosen} SELECT count(*) FROM chosen").bindparams(_SECONDS, _ABOVE, _LIMIT)


def overdue(tables: Tables, name: str) -> TextClause:
    """One row: the lowest and the highest id of the events older than :seconds, among the first
    :limit of this partition; None: there are none. Its primary key."""
    return text(
        f"""
        SELECT min(id) AS first, max(id) AS last
        FROM (SELECT id, created_at FROM {beside(tables, name)} ORDER BY id LIMIT :limit) AS front
        WHERE {_OLD}
        """
    ).bindparams(_SECONDS, _LIMIT)


def _chosen(tables: Tables, partition: str, locking: str) -> str:
    """The tables page (row, id, old) and chosen (row), for a WITH."""
    listeners, ranges = quoted(tables.listeners), quoted(tables.ranges)
    return f"""
        needed AS MATERIALIZED (
            SELECT min(first) AS first FROM (
                SELECT last_processed_id + 1 AS first FROM {listeners}
                UNION ALL
                SELECT CAST(gap ->> 0 AS bigint)
                FROM {listeners} AS l CROSS JOIN LATERAL jsonb_array_elements(l.gaps) AS gap
                UNION ALL
                SELECT CAST(gap ->> 0 AS bigint)
                FROM {ranges} AS r CROSS JOIN LATERAL jsonb_array_elements(r.gaps) AS gap
            ) AS unsettled
        ), page AS MATERIALIZED (
            SELECT ctid AS row, id, {_OLD} AS old FROM {partition}
            WHERE id > :above AND id < (SELECT first FROM needed)
            ORDER BY id LIMIT :limit {locking}
        ), waiting AS MATERIALIZED (
            SELECT d.position
            FROM (SELECT min(id) AS low, max(id) AS high FROM page) AS ends
            CROSS JOIN {listeners} AS l
            CROSS JOIN LATERAL (
                SELECT position FROM {quoted(tables.deliveries)}
                WHERE listener = l.name AND position BETWEEN ends.low AND ends.high
                  AND state <> 'cancelled'
            ) AS d WHERE l.partition = 0
        ), chosen AS (
            SELECT row FROM page WHERE old AND id NOT IN (SELECT position FROM waiting)
        )"""
