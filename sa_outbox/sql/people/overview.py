"""Statements for the overview of everything. Each is cheap on a log of any length.

None counts the log: counts are bounded, and beyond that ids are used. They are plain text without
parameters, and this module needs no SQLAlchemy: a driver runs them as they are
(``sa-outbox status``), and so does a ``Connection`` (``clause``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..log.holders import holders
from ..server.names import table_name
from ..server.times import literal_now, since

if TYPE_CHECKING:
    from sqlalchemy import TextClause

    from ...database.names import Names

MAX_COUNTED = 1000
"""Upper bound of each count, per listener; a count that reaches it is a lower bound."""

GAPS_LOOKED_AT = 20
"""How many of a cursor's gap ranges, from the first, are searched for events."""

WANTS = r"""
    SELECT l.event_types IS NULL OR '*' = ANY (l.event_types) AS everything,
        ARRAY(SELECT replace(replace(replace(replace(
                  one, '\', '\\'), '%', '\%'), '_', '\_'), '*', '%')
              FROM unnest(l.event_types) AS one WHERE one NOT LIKE '!%') AS patterns,
        ARRAY(SELECT replace(replace(replace(replace(
                  substr(one, 2), '\', '\\'), '%', '\%'), '_', '\_'), '*', '%')
              FROM unnest(l.event_types) AS one WHERE one LIKE '!%') AS others"""
"""For a listener ``l``: the event types that it listens to, and among these others that it does
not, as LIKE patterns. All types if no consumer has described it yet."""
MAX_COMPARED_BYTES = 8192
"""Stored bytes of a payload up to which it is compared with a filter."""

MATCHES = f"""CASE
    WHEN NOT (wants.everything OR o.event_type LIKE ANY (wants.patterns))
         OR o.event_type LIKE ANY (wants.others)
         OR (l.tenant IS NOT NULL AND o.tenant IS DISTINCT FROM l.tenant) THEN false
    WHEN l.payload_filter IS NULL OR pg_column_size(o.payload) > {MAX_COMPARED_BYTES} THEN true
    ELSE o.payload @> l.payload_filter END"""
"""Whether a listener ``l`` that ``wants`` these types gets an event ``o``. CASE, because its order
is kept: no payload is read that need not be. A large one counts, unread: a thousand of them would
take seconds."""
_SECONDS = "CAST(extract(epoch FROM {}) AS float8)"


def clause(statement: str) -> TextClause:
    """One of these, for SQLAlchemy."""
    from sqlalchemy import text  # noqa: PLC0415 - this module needs no SQLAlchemy

    return text(statement)


def questions(names: Names) -> dict[str, str]:
    """All queries of the overview, in this order, under the names by which it takes the answers."""
    return {
        "log": log(names),
        "cursors": cursors(names),
        "deliveries": deliveries(names),
        "ranges": ranges(names),
        "dead_letters": dead_letters(names),
        "consumers": consumers(names),
        "holders": holders(names),
    }


def log(names: Names) -> str:
    """One row: database, role, address and port of the server, the time there, first_id and
    last_id of the log (None: it is empty).

    Takes no locks. The ends of the partitions' primary keys.
    """
    log, now = table_name(names), literal_now()
    return f"""
        SELECT CAST(current_database() AS text) AS database, CAST(current_user AS text) AS role,
            host(inet_server_addr()) AS host, inet_server_port() AS port,
            {now} AS at,
            (SELECT min(id) FROM {log}) AS first_id,
            (SELECT max(id) FROM {log}) AS last_id
        """


def cursors(names: Names, *, most: int = MAX_COUNTED) -> str:
    """A row for each partition of each listener, in order.

    ``looked_at``: events of any type above its cursor, up to *most*; ``above``: those of them that
    the listener gets, by its types, its filter and its tenant; ``in_gaps``: ids below it that are
    not settled, or may still appear, without other events; ``age``: seconds since the oldest event
    that it gets was written (None: there is none). If *most* were examined and it gets none of
    them, the age of the last of them as an upper bound.

    Takes no locks. Up to *most* rows of the log for each partition by its primary key, and some in
    its gaps; partitions of the log that end below the cursor are pruned at run time.
    """
    log, now = table_name(names), literal_now()
    is_cut = f"above.looked_at >= {most:d} AND above.created_at IS NULL"
    above_at = f"CASE WHEN {is_cut} THEN above.last_at ELSE above.created_at END"
    return f"""
        SELECT l.name, l.partition, l.partition_count, l.last_processed_id AS position,
            CASE WHEN l.lease_expires_at > {now} THEN l.locked_by END AS owner,
            {_SECONDS.format(f"l.lease_expires_at - {now}")} AS lease_seconds,
            l.locked_by IS NOT NULL AND l.lease_expires_at <= {now} AS expired,
            l.retry_count, l.retry_position, l.retry_after, l.crashes,
            l.last_error_code, l.last_error, l.last_error_at, l.paused_at, l.created_at,
            above.looked_at, above.count AS above, gaps.ids - late.others AS in_gaps,
            {_SECONDS.format(since(f"least({above_at}, late.created_at)", now=now))} AS age
        FROM {table_name(names, "listeners")} AS l
        CROSS JOIN LATERAL ({WANTS}) AS wants
        CROSS JOIN LATERAL (
            SELECT count(*) AS looked_at, count(*) FILTER (WHERE few.matches) AS count,
                min(few.created_at) FILTER (WHERE few.matches) AS created_at,
                max(few.created_at) AS last_at
            FROM (
                SELECT o.created_at, {MATCHES} AS matches FROM {log} AS o
                WHERE o.id > l.last_processed_id ORDER BY o.id LIMIT {most:d}
            ) AS few
        ) AS above
        CROSS JOIN LATERAL (
            SELECT CAST(coalesce(sum(CAST(gap ->> 1 AS bigint) - CAST(gap ->> 0 AS bigint) + 1), 0)
                AS bigint) AS ids
            FROM jsonb_array_elements(l.gaps) AS gap
        ) AS gaps
        CROSS JOIN LATERAL (
            SELECT count(*) FILTER (WHERE NOT o.matches) AS others,
                min(o.created_at) FILTER (WHERE o.matches) AS created_at
            FROM (SELECT CAST(gap ->> 0 AS bigint) AS lo, CAST(gap ->> 1 AS bigint) AS hi
                  FROM jsonb_array_elements(l.gaps) WITH ORDINALITY AS g (gap, number)
                  ORDER BY number LIMIT {GAPS_LOOKED_AT}) AS gap
            CROSS JOIN LATERAL (
                SELECT o.created_at, {MATCHES} AS matches FROM {log} AS o
                WHERE o.id BETWEEN gap.lo AND gap.hi ORDER BY o.id LIMIT {most // 10:d}
            ) AS o
        ) AS late
        ORDER BY l.name, l.partition
        """


def deliveries(names: Names, *, most: int = MAX_COUNTED) -> str:
    """For each listener: how many of its deliveries are scheduled, parked, behind and cancelled,
    among the first *most* by position; next_due_at: when the first of those is due.

    Takes no locks. Up to *most* rows of each listener, by the primary key.
    """
    return f"""
        SELECT l.name, few.*
        FROM (SELECT DISTINCT name FROM {table_name(names, "listeners")}) AS l
        CROSS JOIN LATERAL (
            SELECT count(*) AS counted,
                count(*) FILTER (WHERE state = 'scheduled') AS scheduled,
                count(*) FILTER (WHERE state = 'parked') AS parked,
                count(*) FILTER (WHERE state = 'behind') AS behind,
                count(*) FILTER (WHERE state = 'cancelled') AS cancelled,
                min(due_at) AS next_due_at
            FROM (
                SELECT state, CASE WHEN state IN ('scheduled', 'parked') AND range IS NULL
                                   THEN due_at END AS due_at
                FROM {table_name(names, "deliveries")} WHERE listener = l.name
                ORDER BY position LIMIT {most:d}
            ) AS first
        ) AS few
        WHERE few.counted > 0
        """


def ranges(names: Names) -> str:
    """For each queue that has ranges: how many, how many of them nobody holds, ids left in them,
    seconds since the oldest event in them was written; owners: who holds some, and lease_seconds
    until the first of their leases ends.

    Takes no locks. A small table, and one row of the log for each queue.
    """
    now = literal_now()
    return f"""
        SELECT r.listener AS name, r.ranges, r.free, r.ids, r.owners, r.lease_seconds,
            {_SECONDS.format(since("o.created_at", now=now))} AS age
        FROM (
            SELECT one.listener, count(DISTINCT one.number) AS ranges,
                count(DISTINCT one.number) FILTER (
                    WHERE one.locked_by IS NULL OR one.lease_expires_at <= {now}
                ) AS free,
                coalesce(array_agg(DISTINCT CAST(one.locked_by AS text)) FILTER (
                    WHERE one.lease_expires_at > {now}), '{{}}') AS owners,
                {
        _SECONDS.format(
            f"min(one.lease_expires_at) FILTER (WHERE one.locked_by IS NOT NULL"
            f" AND one.lease_expires_at > {now}) - {now}"
        )
    } AS lease_seconds,
                CAST(sum(gap.hi - gap.lo + 1) AS bigint) AS ids, min(gap.lo) AS first
            FROM {table_name(names, "ranges")} AS one
            CROSS JOIN LATERAL (
                SELECT CAST(part ->> 0 AS bigint) AS lo, CAST(part ->> 1 AS bigint) AS hi
                FROM jsonb_array_elements(one.gaps) AS part
            ) AS gap
            GROUP BY one.listener
        ) AS r
        LEFT JOIN {table_name(names)} AS o ON o.id = r.first
        """


def dead_letters(names: Names, *, most: int = MAX_COUNTED) -> str:
    """For each listener, including removed ones: unresolved dead letters, counted up to *most*
    each.

    Takes no locks. Served by the index on unresolved ones: a skip scan over listeners.
    """
    dead = table_name(names, "dead_letters")
    return f"""
        WITH RECURSIVE concerned AS (
            SELECT min(listener) AS name FROM {dead} WHERE resolution IS NULL
            UNION ALL
            SELECT (SELECT min(d.listener) FROM {dead} AS d
                    WHERE d.resolution IS NULL AND d.listener > c.name)
            FROM concerned AS c WHERE c.name IS NOT NULL
        )
        SELECT c.name, few.count FROM concerned AS c
        CROSS JOIN LATERAL (
            SELECT count(*) AS count FROM (
                SELECT FROM {dead} AS d
                WHERE d.listener = c.name AND d.resolution IS NULL LIMIT {most:d}
            ) AS first
        ) AS few
        WHERE c.name IS NOT NULL
        """


def consumers(names: Names) -> str:
    """The consumers that have announced themselves and are alive: owner, listeners, queues,
    started_at, and seconds for which that is known. A small table."""
    now = literal_now()
    return f"""
        SELECT owner, listeners, queues, started_at,
            {_SECONDS.format(f"expires_at - {now}")} AS seconds
        FROM {table_name(names, "consumers")} WHERE expires_at > {now} ORDER BY owner
        """
