"""Partitions of the log: which there are, who needs them, making and dropping them.

What takes a strong lock is ONE statement, a block that the server runs by itself and commits: a
client that stands still in the middle, because its machine sleeps or a handler blocks its event
loop, can't keep writers waiting. Every block waits for a lock only for as many milliseconds as it
is told (``lock_timeout``), and does nothing while another one runs (an advisory lock of the
transaction). docs/retention.md has the argument.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import bindparam, text
from sqlalchemy.types import BigInteger

from .names import log_name, quoted

if TYPE_CHECKING:
    from sqlalchemy import TextClause

    from ..tables import Tables

ONCE_INSIDE = 10
"""Milliseconds to wait for a partition's lock while that of the log is held: writers wait too."""

# As the migration makes them.
INSERT_ONLY = (
    "autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 100000,"
    " autovacuum_freeze_min_age = 0"
)
# Not INDEXES: of an empty table, ATTACH makes them. Not IDENTITY: ids are drawn by the log.
ALIKE = "INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING STORAGE INCLUDING COMPRESSION"


def state(tables: Tables) -> TextClause:
    """One row: last (the highest id that was drawn), size (ids in a partition), owner (of the log,
    quoted), and the time of the database."""
    log = log_name(tables)
    return text(
        f"""
        SELECT coalesce(pg_sequence_last_value(
                   CAST(pg_get_serial_sequence('{log}', 'id') AS regclass)), 0) AS last,
               (SELECT partition_size FROM {quoted(tables.meta)}) AS size,
               quote_ident(pg_get_userbyid(relowner)) AS owner, clock_timestamp() AS now
        FROM pg_catalog.pg_class WHERE oid = CAST('{log}' AS regclass)
        """
    )


def partitions(tables: Tables) -> TextClause:
    """Every table that is a partition of the log, or has a name as partitions have: name, bounds
    (as PostgreSQL writes them), attached. Of one that is being filled, bounds is its CHECK
    constraint; of one that is somebody's own, NULL.

    Functions that write down what a catalog says look at the table as it is now, and not as the
    snapshot of this statement has it: one that was dropped meanwhile is an internal error for the
    second of them. The first needs no table: bounds name no columns."""
    log = log_name(tables)
    return text(
        f"""
        SELECT c.relname AS name, pg_get_expr(c.relpartbound, 0) AS bounds, true AS attached
        FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = CAST('{log}' AS regclass) AND c.relpartbound IS NOT NULL
        UNION ALL
        SELECT c.relname, pg_get_constraintdef(k.oid), false
        FROM pg_catalog.pg_class c
        LEFT JOIN pg_catalog.pg_constraint k
          ON k.conrelid = c.oid AND k.conname = c.relname || '_range_check'
        WHERE c.relnamespace = (SELECT relnamespace FROM pg_catalog.pg_class
                                WHERE oid = CAST('{log}' AS regclass))
          AND c.relname ~ '^{tables.outbox.name}_p[0-9]+$'
          AND NOT EXISTS (SELECT FROM pg_catalog.pg_inherits
                          WHERE inhrelid = c.oid AND inhparent = CAST('{log}' AS regclass))
        """
    )


def lowest(tables: Tables, name: str) -> TextClause:
    """The lowest id from :low on in this partition; None if there is none. Its primary key."""
    return text(f"SELECT min(id) FROM {beside(tables, name)} WHERE id >= :low").bindparams(
        bindparam("low", type_=BigInteger)
    )


def age(tables: Tables, name: str) -> TextClause:
    """Seconds since the newest event of this partition was written; None if it is empty. Its
    primary key: ids and times are drawn in the same moment, so the highest id is the newest."""
    return text(
        f"""
        SELECT CAST(extract(epoch FROM clock_timestamp() - created_at) AS float8)
        FROM {beside(tables, name)} ORDER BY id DESC LIMIT 1
        """
    )


def registered(tables: Tables) -> TextClause:
    """A row if any listener is registered."""
    return text(f"SELECT 1 FROM {quoted(tables.listeners)} LIMIT 1")


def who_needs(tables: Tables, low: int, high: int) -> TextClause:
    """Who still needs an event with *low* <= id < *high*: listener, why, position (the lowest, for
    each reason), since (when its cursor was written last), paused.

    A cursor that has not passed them, a gap below it, a range that was taken, a delivery that
    waits. Not one that was cancelled: it never starts. Reads the rows of listeners and ranges, and
    of each listener's deliveries one, by the primary key.
    """
    return text(
        f"SELECT listener, why, min(position) AS position, max(since) AS since,"
        f" bool_or(paused) AS paused FROM ({_needs(tables, low, high)}) AS needs"
        " GROUP BY listener, why ORDER BY listener, why"
    )


def _needs(tables: Tables, low: int, high: int) -> str:
    listeners, ranges = quoted(tables.listeners), quoted(tables.ranges)

    def in_gaps(of: str) -> str:
        return (
            f"CROSS JOIN LATERAL (SELECT min(CAST(gap ->> 0 AS bigint)) AS position"
            f" FROM jsonb_array_elements({of}.gaps) AS gap"
            f" WHERE CAST(gap ->> 0 AS bigint) < {high} AND CAST(gap ->> 1 AS bigint) >= {low})"
            " AS open WHERE open.position IS NOT NULL"
        )

    return f"""
        SELECT name AS listener, 'cursor' AS why, last_processed_id + 1 AS position,
               updated_at AS since, paused_at IS NOT NULL AS paused
        FROM {listeners} WHERE last_processed_id < {high} - 1
        UNION ALL
        SELECT l.name, 'gap', open.position, l.updated_at, l.paused_at IS NOT NULL
        FROM {listeners} AS l {in_gaps("l")}
        UNION ALL
        SELECT r.listener, 'range', open.position, r.updated_at, false
        FROM {ranges} AS r {in_gaps("r")}
        UNION ALL
        SELECT l.name, 'delivery', d.position, l.updated_at, l.paused_at IS NOT NULL
        FROM {listeners} AS l CROSS JOIN LATERAL (
            SELECT position FROM {quoted(tables.deliveries)}
            WHERE listener = l.name AND position >= {low} AND position < {high}
              AND state <> 'cancelled'
            ORDER BY position LIMIT 1
        ) AS d WHERE l.partition = 0
    """


def drop(
    tables: Tables, name: str, low: int, high: int, *, older_than: float, patience: int
) -> TextClause:
    """Drop the partition *name* with the ids *low* <= id < *high*, unless somebody needs it.

    Everything is asked again under ACCESS EXCLUSIVE on the log. Nobody holds a lock on it then, so
    no transaction is left that could still insert: every id that was drawn is visible, or never
    will be. And nobody reads, so no listener can begin in this partition after it was asked. Files
    are removed when the lock is released already. No error if it is needed, or gone.
    """
    partition = beside(tables, name)
    return block(
        tables,
        patience,
        f"""
        LOCK TABLE ONLY {log_name(tables)} IN ACCESS EXCLUSIVE MODE;
        PERFORM set_config('lock_timeout', '{ONCE_INSIDE}ms', true);
        IF NOT EXISTS (SELECT FROM {quoted(tables.listeners)})
           OR NOT EXISTS (SELECT FROM pg_catalog.pg_inherits
                          WHERE inhrelid = to_regclass('{partition}')
                            AND inhparent = CAST('{log_name(tables)}' AS regclass))
        THEN
            RETURN;
        END IF;
        IF (SELECT created_at FROM {partition} ORDER BY id DESC LIMIT 1)
              > clock_timestamp() - make_interval(secs => {older_than:f})
           OR EXISTS ({_needs(tables, low, high)})
        THEN
            RETURN;
        END IF;
        DROP TABLE {partition};
        """,
    )


def make(
    tables: Tables, name: str, low: int, high: int, *, rest: str, owner: str, patience: int
) -> TextClause:
    """Make the partition *name* for the ids *low* <= id < *high*, while *rest* has no events.

    Under a lock that keeps writers out. ATTACH by itself would not, and an INSERT that began before
    it goes by the partitions it has seen: coming to an id of the new one, it would choose *rest*,
    and be refused. Readers are not kept out: ATTACH and not PARTITION OF. It reads *rest* through,
    which is empty. No error if the name is taken.
    """
    partition, catch_all = beside(tables, name), beside(tables, rest)
    return block(
        tables,
        patience,
        f"""
        LOCK TABLE ONLY {log_name(tables)} IN SHARE ROW EXCLUSIVE MODE;
        PERFORM set_config('lock_timeout', '{ONCE_INSIDE}ms', true);
        IF to_regclass('{partition}') IS NOT NULL OR EXISTS (SELECT FROM {catch_all}) THEN
            RETURN;
        END IF;
        CREATE TABLE {partition} (LIKE {log_name(tables)} {ALIKE}) WITH ({INSERT_ONLY});
        ALTER TABLE {partition} OWNER TO {owner};
        ALTER TABLE {log_name(tables)} ATTACH PARTITION {partition}
            FOR VALUES FROM ({low}) TO ({high});
        """,
    )


def alone(tables: Tables) -> TextClause:
    """True if nobody else changes partitions until this transaction ends. Waits for nobody."""
    return text(f"SELECT {_alone(tables)}")


def block(tables: Tables, patience: int, body: str) -> TextClause:
    # The commit need not reach the disk while the locks are held. A DROP waits for it all the same.
    return text(
        f"""
        DO $outbox$
        BEGIN
            IF NOT {_alone(tables)} THEN
                RETURN;
            END IF;
            PERFORM set_config('synchronous_commit', 'off', true);
            PERFORM set_config('lock_timeout', '{patience}ms', true);
            {body}
        END
        $outbox$
        """
    )


def _alone(tables: Tables) -> str:
    log = f"CAST(CAST(CAST('{log_name(tables)}' AS regclass) AS oid) AS bigint)"
    return f"pg_try_advisory_xact_lock(hashtextextended('sa_outbox retention', {log}))"


def beside(tables: Tables, name: str) -> str:
    """A table beside the log. The caller's names are the log's with digits, or the catch-all's."""
    schema = tables.outbox.schema
    return f'"{name}"' if schema is None else f'"{schema}"."{name}"'
