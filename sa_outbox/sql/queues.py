"""Statements of queues: the one cursor that all processes share, and taking events from it.

Who takes events locks the listener's row, or compares its revision, so no event is in two ranges;
whatever is taken from the cursor is in a range, in a delivery's row, or settled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import bindparam, text
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.types import BigInteger, Boolean, Double, Integer, Text

from .names import log_name, quoted
from .ranges import EXPIRY, LEASE
from .reading import bound, columns, matches

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import TextClause

    from ..tables import Tables

_DUE = "listener = :name AND state IN ('scheduled', 'parked') AND range IS NULL"


def state(tables: Tables) -> TextClause:
    """Where the queue :name stands. One row: position, gaps (text), revision, paused, urgent
    (whether an event of priority above 0 was not taken yet), and seconds until a delivery is due
    and until a range that is not among :held is free (None: there is none).

    Few rows: ranges of one listener, and the first of an index for the others.
    """
    seconds = "CAST(extract(epoch FROM {} - clock_timestamp()) AS float8)"
    deliveries = quoted(tables.deliveries)
    return text(
        f"""
        SELECT last_processed_id AS position, CAST(gaps AS text) AS gaps, revision,
            paused_at IS NOT NULL AS paused,
            EXISTS (SELECT FROM {log_name(tables)} AS o WHERE o.priority > 0
                AND o.id >= coalesce(CAST(gaps -> 0 ->> 0 AS bigint), last_processed_id + 1)
                AND (o.id > last_processed_id OR untaken.ids @> o.id)) AS urgent,
            (SELECT {seconds.format("min(due_at)")} FROM {deliveries} WHERE {_DUE}) AS due_in,
            (SELECT min(CASE WHEN locked_by IS NULL THEN 0
                        ELSE {seconds.format("lease_expires_at")} END)
             FROM {quoted(tables.ranges)}
             WHERE listener = :name AND NOT number = ANY (:held)) AS free_in
        FROM {quoted(tables.listeners)} CROSS JOIN LATERAL (
            SELECT range_agg(int8range(
                CAST(gap ->> 0 AS bigint), CAST(gap ->> 1 AS bigint), '[]')) AS ids
            FROM jsonb_array_elements(gaps) AS gap
        ) AS untaken
        WHERE name = :name AND partition = 0
        """
    ).bindparams(bindparam("name", type_=Text), bindparam("held", type_=ARRAY(BigInteger)))


def busy(tables: Tables) -> TextClause:
    """Of the queues :names, those with a range or a due delivery of an event up to :ceiling.

    With :retries also those with a delivery that failed and is not due yet, else not those whose
    ranges others than :owner hold. Not those that are paused. For ``drain``. Few rows.
    """
    return text(
        f"""
        SELECT q.name FROM {quoted(tables.listeners)} AS q
        WHERE q.name = ANY (:names) AND q.partition = 0 AND q.paused_at IS NULL AND (EXISTS (
            SELECT FROM {quoted(tables.ranges)} AS r, jsonb_array_elements(r.gaps) AS gap
            WHERE r.listener = q.name AND CAST(gap ->> 0 AS bigint) <= :ceiling
              AND (:retries OR r.locked_by IS NULL OR r.locked_by = :owner)
        ) OR EXISTS (
            SELECT FROM {quoted(tables.deliveries)} AS d
            WHERE d.listener = q.name AND d.state IN ('scheduled', 'parked') AND d.range IS NULL
              AND d.position <= :ceiling
              AND (d.due_at <= clock_timestamp() OR (:retries AND d.attempts > 0))
        ))
        """
    ).bindparams(
        bindparam("names", type_=ARRAY(Text)),
        bindparam("ceiling", type_=BigInteger),
        bindparam("retries", type_=Boolean),
        bindparam("owner", type_=Text),
    )


def lock(tables: Tables) -> TextClause:
    """Position, gaps (text), revision and paused of the queue :name. Locks its row: until the
    transaction ends, nobody else takes events. If this process sleeps in the middle, the server
    ends the transaction after :patience (``30s``): the others would wait for ever."""
    return text(
        f"""
        SELECT last_processed_id AS position, CAST(gaps AS text) AS gaps, revision,
               paused_at IS NOT NULL AS paused,
               set_config('idle_in_transaction_session_timeout', :patience, true)
        FROM {quoted(tables.listeners)} WHERE name = :name AND partition = 0 FOR UPDATE
        """
    ).bindparams(bindparam("name", type_=Text), bindparam("patience", type_=Text))


def read_urgent(tables: Tables, types: Sequence[str]) -> TextClause:
    """Up to :limit events of these types with a priority above 0 that were not taken yet: those
    above :cursor, and in :untaken (a multirange). Most urgent first. Only urgent events are in
    the index that serves it."""
    statement = bound(
        f"""
        SELECT {columns()}, true AS matches FROM {log_name(tables)} AS o
        WHERE o.priority > 0 AND {matches(types)}
          AND (o.id > :cursor OR CAST(:untaken AS int8multirange) @> o.id)
        ORDER BY o.priority DESC, o.id LIMIT :limit
        """,
        types,
    )
    return statement.bindparams(bindparam("untaken", type_=Text))


def read_fairly(tables: Tables, types: Sequence[str]) -> TextClause:
    """Up to :limit events of these types that were not taken yet, of each tenant the first, then
    of each the second, and so on. Looks at :window ids from the first that was not taken."""
    statement = bound(
        f"""
        SELECT {columns()}, true AS matches FROM (
            SELECT *, row_number() OVER (PARTITION BY tenant ORDER BY id) AS turn
            FROM {log_name(tables)}
            WHERE id >= :first AND id < :first + :window AND {matches(types)}
              AND priority >= 0 AND (run_at IS NULL OR run_at <= clock_timestamp())
              AND (id > :cursor OR CAST(:untaken AS int8multirange) @> id)
        ) AS o ORDER BY o.turn, o.id LIMIT :limit
        """,
        types,
    )
    return statement.bindparams(
        bindparam("first", type_=BigInteger),
        bindparam("window", type_=BigInteger),
        bindparam("untaken", type_=Text),
    )


def take(tables: Tables) -> TextClause:
    """Move the queue's cursor from :revision on to :position with these :gaps, and make a range of
    the ids in :taken (JSON, as gaps) with :upper as the highest, for :owner. Columns of a lease.

    No row if somebody moved it since: then nothing is taken.
    """
    return text(
        f"""
        WITH moved AS (
            UPDATE {quoted(tables.listeners)}
            SET last_processed_id = :position, gaps = CAST(:gaps AS jsonb), revision = revision + 1,
                updated_at = clock_timestamp()
            WHERE name = :name AND partition = 0 AND revision = :revision RETURNING name
        )
        INSERT INTO {quoted(tables.ranges)}
            (listener, last_processed_id, gaps, locked_by, lease_expires_at)
        SELECT name, :upper, CAST(:taken AS jsonb), :owner, {EXPIRY} FROM moved
        RETURNING {LEASE}
        """
    ).bindparams(
        bindparam("name", type_=Text),
        bindparam("revision", type_=BigInteger),
        bindparam("position", type_=BigInteger),
        bindparam("gaps", type_=Text),
        bindparam("upper", type_=BigInteger),
        bindparam("taken", type_=Text),
        bindparam("owner", type_=Text),
        bindparam("duration", type_=Double),
    )


def pass_over(tables: Tables) -> TextClause:
    """The same without a range: nothing of what was read is to be handled now."""
    return text(
        f"""
        UPDATE {quoted(tables.listeners)}
        SET last_processed_id = :position, gaps = CAST(:gaps AS jsonb), revision = revision + 1,
            updated_at = clock_timestamp()
        WHERE name = :name AND partition = 0 AND revision = :revision RETURNING name
        """
    ).bindparams(
        bindparam("name", type_=Text),
        bindparam("revision", type_=BigInteger),
        bindparam("position", type_=BigInteger),
        bindparam("gaps", type_=Text),
    )


def take_due(tables: Tables) -> TextClause:
    """Make a range for :owner of up to :limit deliveries of the queue :name that are due.

    Of priority :least or more, by priority, or with :by_age the oldest first. Columns of an event,
    then attempts, crashes, state, and those of a lease. Locks the deliveries it takes and passes by
    those that others take.
    """
    deliveries, ranges = quoted(tables.deliveries), quoted(tables.ranges)
    return text(
        f"""
        WITH due AS MATERIALIZED (
            SELECT position FROM {deliveries}
            WHERE {_DUE} AND due_at <= clock_timestamp() AND priority >= :least
            ORDER BY CASE WHEN :by_age THEN 0 ELSE priority END DESC, due_at
            LIMIT :limit FOR UPDATE SKIP LOCKED
        ), made AS (
            INSERT INTO {ranges} (listener, last_processed_id, gaps, locked_by, lease_expires_at)
            SELECT :name, max(position),
                   jsonb_agg(jsonb_build_array(position, position) ORDER BY position),
                   :owner, {EXPIRY}
            FROM due HAVING count(*) > 0 RETURNING {LEASE}
        ), held AS (
            UPDATE {deliveries} AS d SET range = made.part, updated_at = clock_timestamp()
            FROM due, made WHERE d.listener = :name AND d.position = due.position
            RETURNING d.position AS id, d.attempts, d.crashes, d.state, d.due_at
        )
        SELECT {columns()}, true AS matches, held.attempts, held.crashes AS earlier_crashes,
               held.state, made.*
        FROM held JOIN {log_name(tables)} AS o ON o.id = held.id CROSS JOIN made
        ORDER BY CASE WHEN :by_age THEN 0 ELSE o.priority END DESC, held.due_at
        """
    ).bindparams(
        bindparam("name", type_=Text),
        bindparam("by_age", type_=Boolean),
        bindparam("least", type_=Integer),
        bindparam("limit", type_=Integer),
        bindparam("owner", type_=Text),
        bindparam("duration", type_=Double),
    )
