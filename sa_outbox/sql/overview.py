"""Statements that tell how everything stands, for people. Each is cheap on a log of any length.

None counts the log: what is counted is counted up to a bound, and what is above it is told by ids.
They are plain text without parameters, and this module needs no SQLAlchemy: a driver runs them as
they are (``sa-outbox status``), and so does a ``Connection`` (``clause``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .names import table_name

if TYPE_CHECKING:
    from sqlalchemy import TextClause

    from ..table_names import Names

MOST_COUNTED = 1000
"""What is counted is counted up to here, for each listener; more is told as a lower bound."""

GAPS_LOOKED_AT = 20
"""Ranges of a cursor's gaps, the first ones, in which the oldest event is looked for."""

_SECONDS = "CAST(extract(epoch FROM {}) AS float8)"


def clause(statement: str) -> TextClause:
    """One of these, as SQLAlchemy runs it."""
    from sqlalchemy import text  # noqa: PLC0415 - see above

    return text(statement)


def questions(names: Names) -> dict[str, str]:
    """All that the overview asks, in this order, under the names by which it takes the answers."""
    return {
        "log": log(names),
        "cursors": cursors(names),
        "deliveries": deliveries(names),
        "ranges": ranges(names),
        "dead_letters": dead_letters(names),
        "consumers": consumers(names),
        "holders": holders(names),
    }


def all_in_one(names: Names) -> str:
    """The same as one text of statements with one value for an answer: a JSON object with a list
    of rows under each name. In a transaction that reads; compiling it would take longer than it
    runs."""
    parts = ", ".join(
        f"'{name}', (SELECT coalesce(json_agg(row_to_json(one)), '[]') FROM ({each}) AS one)"
        for name, each in questions(names).items()
    )
    return (
        "BEGIN ISOLATION LEVEL READ COMMITTED, READ ONLY; SET LOCAL jit = off; "
        f"SELECT json_build_object({parts}); COMMIT"
    )


MOMENTS = frozenset(
    {
        *("at", "created_at", "last_error_at", "next_due_at", "paused_at", "retry_after"),
        "started_at",
    }
)
"""Columns that are times, which JSON has as text."""


def log(names: Names) -> str:
    """One row: database, role, address and port of the server, the time there, first_id and
    last_id of the log (None: it is empty).

    Takes no locks. The ends of the partitions' primary keys.
    """
    log = table_name(names)
    return f"""
        SELECT CAST(current_database() AS text) AS database, CAST(current_user AS text) AS role,
            host(inet_server_addr()) AS host, inet_server_port() AS port,
            clock_timestamp() AS at,
            (SELECT min(id) FROM {log}) AS first_id,
            (SELECT max(id) FROM {log}) AS last_id
        """


def cursors(names: Names, *, most: int = MOST_COUNTED) -> str:
    """A row for each partition of each listener, in order.

    ``above``: events of any type above its cursor, counted up to *most*; ``in_gaps``: ids below it
    that are not settled, or may still appear; ``age``: seconds since the oldest event of either
    was written (None: there is none).

    Takes no locks. A row of the log for each partition by its primary key, and up to *most* entries
    of that index; partitions of the log that end below the cursor are left out while it runs.
    """
    log = table_name(names)
    return f"""
        SELECT l.name, l.partition, l.partition_count, l.last_processed_id AS position,
            CASE WHEN l.lease_expires_at > clock_timestamp() THEN l.locked_by END AS owner,
            {_SECONDS.format("l.lease_expires_at - clock_timestamp()")} AS lease_seconds,
            l.locked_by IS NOT NULL AND l.lease_expires_at <= clock_timestamp() AS expired,
            l.retry_count, l.retry_position, l.retry_after, l.crashes,
            l.last_error_code, l.last_error, l.last_error_at, l.paused_at, l.created_at,
            above.count AS above, gaps.ids AS in_gaps,
            {_SECONDS.format("clock_timestamp() - least(next.created_at, late.created_at)")} AS age
        FROM {table_name(names, "listeners")} AS l
        CROSS JOIN LATERAL (
            SELECT count(*) AS count FROM (
                SELECT FROM {log} AS o
                WHERE o.id > l.last_processed_id ORDER BY o.id LIMIT {most:d}
            ) AS few
        ) AS above
        CROSS JOIN LATERAL (
            SELECT CAST(coalesce(sum(CAST(gap ->> 1 AS bigint) - CAST(gap ->> 0 AS bigint) + 1), 0)
                AS bigint) AS ids
            FROM jsonb_array_elements(l.gaps) AS gap
        ) AS gaps
        LEFT JOIN LATERAL (
            SELECT o.created_at FROM {log} AS o
            WHERE o.id > l.last_processed_id ORDER BY o.id LIMIT 1
        ) AS next ON true
        LEFT JOIN LATERAL (
            SELECT o.created_at
            FROM (SELECT CAST(gap ->> 0 AS bigint) AS lo, CAST(gap ->> 1 AS bigint) AS hi
                  FROM jsonb_array_elements(l.gaps) WITH ORDINALITY AS g (gap, number)
                  ORDER BY number LIMIT {GAPS_LOOKED_AT}) AS gap
            CROSS JOIN LATERAL (
                SELECT id, created_at FROM {log}
                WHERE id BETWEEN gap.lo AND gap.hi ORDER BY id LIMIT 1
            ) AS o
            ORDER BY o.id LIMIT 1
        ) AS late ON true
        ORDER BY l.name, l.partition
        """


def deliveries(names: Names, *, most: int = MOST_COUNTED) -> str:
    """Of each listener: how many of its deliveries are scheduled, parked, behind and cancelled,
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
    """Of each queue that has some: ranges, those that nobody holds, ids that are left in them, and
    seconds since the oldest event in them was written.

    Takes no locks. A small table, and one row of the log for each queue.
    """
    return f"""
        SELECT r.listener AS name, r.ranges, r.free, r.ids,
            {_SECONDS.format("clock_timestamp() - o.created_at")} AS age
        FROM (
            SELECT one.listener, count(DISTINCT one.number) AS ranges,
                count(DISTINCT one.number) FILTER (
                    WHERE one.locked_by IS NULL OR one.lease_expires_at <= clock_timestamp()
                ) AS free,
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


def dead_letters(names: Names, *, most: int = MOST_COUNTED) -> str:
    """Of each listener, also of one that is gone: dead letters that nobody has resolved, counted
    up to *most* for each.

    Takes no locks. Served by the index on what is not resolved: each listener is jumped to.
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
    return f"""
        SELECT owner, listeners, queues, started_at,
            {_SECONDS.format("expires_at - clock_timestamp()")} AS seconds
        FROM {table_name(names, "consumers")} WHERE expires_at > clock_timestamp() ORDER BY owner
        """


def holders(names: Names) -> str:
    """The transactions that hold RowExclusiveLock on the log, as ``horizon.holders`` has them, with
    pid, application_name, state and age in seconds, the oldest first.

    pid is None, and the rest unknown, for a prepared transaction. Other roles' application_name,
    state and age are seen only by members of pg_read_all_stats. No table is read, and no lock of
    the log is taken.
    """
    return f"""
        SELECT l.virtualtransaction AS transaction, l.pid,
               coalesce(a.application_name, '') AS application_name,
               coalesce(a.state, '') AS state,
               coalesce(CAST(extract(epoch FROM clock_timestamp() - a.xact_start) AS float8), 0)
                   AS seconds
        FROM pg_catalog.pg_locks l LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid
        WHERE l.locktype = 'relation' AND l.relation = CAST('{table_name(names)}' AS regclass)
          AND l.database = (SELECT oid FROM pg_catalog.pg_database
                            WHERE datname = current_database())
          AND l.mode = 'RowExclusiveLock' AND l.granted
        ORDER BY seconds DESC
        """
