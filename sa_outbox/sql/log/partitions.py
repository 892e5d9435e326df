"""Partitions of the log: listing them, who needs them, creating and dropping them.

Whatever takes a strong lock is ONE statement, a block that the server runs by itself and commits: a
client that stalls in the middle, because its machine is suspended or a handler blocks its event
loop, can't make writers wait. Every block waits for a lock only for the given number of
milliseconds (``lock_timeout``), and does nothing while another one runs (an advisory lock of the
transaction). docs/retention.md has the argument.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import bindparam
from sqlalchemy.types import BigInteger

from ..server.names import log_name, quoted
from ..server.timed_text import text
from ..server.times import NOW, literal_now, seconds_until

if TYPE_CHECKING:
    from sqlalchemy import TextClause

    from ...database.tables import Tables

ONCE_INSIDE = 10
"""Milliseconds to wait for a partition's lock while holding the log's: writers wait too."""

# As the migration creates them.
INSERT_ONLY = (
    "autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 100000,"
    " autovacuum_freeze_min_age = 0"
)
# Not INDEXES: for an empty table, ATTACH creates them. Not IDENTITY: the log draws the ids.
ALIKE = "INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING STORAGE INCLUDING COMPRESSION"


def state(tables: Tables) -> TextClause:
    """One row: last (the highest id that was drawn), size (ids per partition), owner (of the log,
    quoted), and the database's time."""
    log = log_name(tables)
    return text(
        f"""
        SELECT coalesce(pg_sequence_last_value(
                   CAST(pg_get_serial_sequence('{log}', 'id') AS regclass)), 0) AS last,
               (SELECT partition_size FROM {quoted(tables.meta)}) AS size,
               quote_ident(pg_get_userbyid(relowner)) AS owner, {NOW} AS now
        FROM pg_catalog.pg_class WHERE oid = CAST('{log}' AS regclass)
        """
    )


def partitions(tables: Tables) -> TextClause:
    """Every table that is a partition of the log, or has a name like one: name, bounds (as
    PostgreSQL writes them), attached. For one that is being filled, bounds is its CHECK constraint;
    for someone else's table, NULL.

    Functions that print catalog content read the table as it is now, not as of this statement's
    snapshot: for one that was dropped meanwhile, the second of them raises an internal error. The
    first needs no table: bounds name no columns.
    """
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
    primary key: ids and times are drawn at the same moment, so the highest id is the newest."""
    return text(
        f"""
        SELECT -{seconds_until("created_at")}
        FROM {beside(tables, name)} ORDER BY id DESC LIMIT 1
        """
    )


def registered(tables: Tables) -> TextClause:
    """A row if any listener is registered."""
    return text(f"SELECT 1 FROM {quoted(tables.listeners)} LIMIT 1")


def who_needs(tables: Tables, low: int, high: int) -> TextClause:
    """Who still needs an event with *low* <= id < *high*: listener, why, position (the lowest, for
    each reason), since (when its cursor was last written), paused.

    A cursor that has not passed them, a gap below it, a claimed range, a waiting delivery. Not a
    cancelled one: it never starts. Reads the rows of listeners and ranges, and one delivery of each
    listener, by the primary key.
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
    """Drop the partition *name* with the ids *low* <= id < *high*, unless someone needs it.

    Everything is checked again under ACCESS EXCLUSIVE on the log. Nobody else holds a lock on it
    then, so no transaction is left that could still insert: every drawn id is visible, or never
    will be. And nobody reads, so no listener can begin in this partition after the check. Files are
    removed after the lock is released. No error if it is needed, or gone.
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
              > {literal_now()} - make_interval(secs => {older_than:f})
           OR EXISTS ({_needs(tables, low, high)})
        THEN
            RETURN;
        END IF;
        DROP TABLE {partition};
        """,
    )


def drop_unused(tables: Tables, name: str, low: int, *, patience: int) -> TextClause:
    """Drop the partition *name* that begins at *low*, if no id from there on was drawn: it is cut
    for another ``partition_size``. Under ACCESS EXCLUSIVE on the log nobody draws one. No error if
    it is used, or gone."""
    partition, log = beside(tables, name), log_name(tables)
    return block(
        tables,
        patience,
        f"""
        LOCK TABLE ONLY {log} IN ACCESS EXCLUSIVE MODE;
        PERFORM set_config('lock_timeout', '{ONCE_INSIDE}ms', true);
        IF coalesce(pg_sequence_last_value(
               CAST(pg_get_serial_sequence('{log}', 'id') AS regclass)), 0) >= {max(low, 1)}
           OR NOT EXISTS (SELECT FROM pg_catalog.pg_inherits
                          WHERE inhrelid = to_regclass('{partition}')
                            AND inhparent = CAST('{log}' AS regclass))
        THEN
            RETURN;
        END IF;
        IF EXISTS (SELECT FROM {partition}) THEN
            RETURN;
        END IF;
        DROP TABLE {partition};
        """,
    )


def make(
    tables: Tables, name: str, low: int, high: int, *, rest: str, owner: str, patience: int
) -> TextClause:
    """Create the partition *name* for the ids *low* <= id < *high*, while *rest* has no events.

    Under a lock that keeps writers out. ATTACH alone would not, and an INSERT that began before it
    uses the partitions it has seen: for an id of the new one, it would choose *rest*, and be
    refused. Readers are not kept out: ATTACH, not PARTITION OF. It scans *rest*, which is empty. No
    error if the name is taken.
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
    """True if nobody else changes partitions until this transaction ends. Does not wait."""
    return text(f"SELECT {_alone(tables)}")


def unchanged(tables: Tables) -> TextClause:
    """Prevent the deletion of events and changes of partitions until this transaction ends: for
    whoever gives a listener a lower cursor, and so needs old events. Waits for a running change,
    which is short."""
    return text(f"SELECT {unchanged_until_commit(tables)}")


def unchanged_until_commit(tables: Tables) -> str:
    """SQL that prevents the deletion of events and changes of partitions until the transaction
    ends, for use within a statement."""
    return f"pg_advisory_xact_lock_shared({_lock(tables)})"


def block(tables: Tables, patience: int, body: str) -> TextClause:
    # The commit need not reach the disk while the locks are held. A DROP still waits for it.
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
    return f"pg_try_advisory_xact_lock({_lock(tables)})"


def _lock(tables: Tables) -> str:
    log = f"CAST(CAST(CAST('{log_name(tables)}' AS regclass) AS oid) AS bigint)"
    return f"hashtextextended('sa_outbox retention', {log})"


def beside(tables: Tables, name: str) -> str:
    """A table next to the log. The caller's names are the log's with digits, or the catch-all's."""
    schema = tables.outbox.schema
    return f'"{name}"' if schema is None else f'"{schema}"."{name}"'
