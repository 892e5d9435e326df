"""Statements of queues: the one cursor that all processes share, and the ranges they have taken.

A range is a set of events that one process holds under a lease. Who takes events locks the
listener's row first, so no event is in two ranges; whatever is taken from the cursor is in a range,
in a delivery's row, or settled. Every write under a range's lease has its token and its revision
in the WHERE, as those of a listener's cursor do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import bindparam, text
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.types import BigInteger, Boolean, Double, Integer, Text

from .names import log_name, quoted
from .reading import bound, columns, matches

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import TextClause

    from ..tables import Tables

_TERM = (
    "listener = :name AND number = :part AND lease_token = :token AND last_processed_id = :old"
    " AND revision = :revision AND locked_by IS NOT NULL"
)
_EXPIRY = "clock_timestamp() + make_interval(secs => :duration)"
_TYPES = (
    bindparam("name", type_=Text),
    bindparam("part", type_=BigInteger),
    bindparam("token", type_=BigInteger),
    bindparam("old", type_=BigInteger),
    bindparam("revision", type_=BigInteger),
)
_DUE = "listener = :name AND state IN ('scheduled', 'parked') AND range IS NULL"
_LEASE = """
    listener AS name, number AS part, lease_token AS token, last_processed_id AS position,
    CAST(gaps AS text) AS gaps, revision, 0 AS retry_count, CAST(NULL AS bigint) AS retry_position,
    CAST(NULL AS float8) AS retry_in, crashes, CAST(NULL AS text) AS fingerprint"""


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
                AND (o.id > last_processed_id OR EXISTS (
                    SELECT FROM jsonb_array_elements(gaps) AS gap WHERE o.id
                    BETWEEN CAST(gap ->> 0 AS bigint) AND CAST(gap ->> 1 AS bigint)))) AS urgent,
            (SELECT {seconds.format("min(due_at)")} FROM {deliveries} WHERE {_DUE}) AS due_in,
            (SELECT min(CASE WHEN locked_by IS NULL THEN 0
                        ELSE {seconds.format("lease_expires_at")} END)
             FROM {quoted(tables.ranges)}
             WHERE listener = :name AND NOT number = ANY (:held)) AS free_in
        FROM {quoted(tables.listeners)} WHERE name = :name AND partition = 0
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


def claim(tables: Tables) -> TextClause:
    """Claim up to :limit ranges of the queue :name that are free or expired, for :owner.

    Columns of a lease. Locks the rows it claims and passes by those that others work on.
    """
    ranges = quoted(tables.ranges)
    return text(
        f"""
        WITH free AS MATERIALIZED (
            SELECT listener AS of, number AS which, locked_by AS earlier FROM {ranges}
            WHERE listener = :name
              AND (locked_by IS NULL OR lease_expires_at <= clock_timestamp())
            ORDER BY number LIMIT :limit FOR UPDATE SKIP LOCKED
        )
        UPDATE {ranges} SET
            locked_by = :owner, lease_token = lease_token + 1, lease_expires_at = {_EXPIRY},
            updated_at = clock_timestamp(),
            crashes = crashes + CASE WHEN free.earlier <> :owner THEN 1 ELSE 0 END
        FROM free WHERE listener = free.of AND number = free.which
        RETURNING {_LEASE}
        """
    ).bindparams(
        bindparam("name", type_=Text),
        bindparam("owner", type_=Text),
        bindparam("duration", type_=Double),
        bindparam("limit", type_=Integer),
    )


def lock(tables: Tables) -> TextClause:
    """Position, gaps (text), revision and paused of the queue :name. Locks its row: until the
    transaction ends, nobody else takes events."""
    return text(
        f"""
        SELECT last_processed_id AS position, CAST(gaps AS text) AS gaps, revision,
               paused_at IS NOT NULL AS paused
        FROM {quoted(tables.listeners)} WHERE name = :name AND partition = 0 FOR UPDATE
        """
    ).bindparams(bindparam("name", type_=Text))


def read_urgent(tables: Tables, types: Sequence[str]) -> TextClause:
    """Up to :limit events of these types with a priority above 0 that were not taken yet: those
    above :cursor, and in the ranges :lows to :highs. Most urgent first. Only urgent events are in
    the index that serves it."""
    statement = bound(
        f"""
        SELECT {columns()}, true AS matches FROM {log_name(tables)} AS o
        WHERE o.priority > 0 AND {matches(types)} AND (o.id > :cursor OR EXISTS (
            SELECT FROM unnest(:lows, :highs) AS gap (lo, hi) WHERE o.id BETWEEN gap.lo AND gap.hi))
        ORDER BY o.priority DESC, o.id LIMIT :limit
        """,
        types,
    )
    return statement.bindparams(
        bindparam("lows", type_=ARRAY(BigInteger)), bindparam("highs", type_=ARRAY(BigInteger))
    )


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
              AND (id > :cursor OR EXISTS (
                SELECT FROM unnest(:lows, :highs) AS gap (lo, hi)
                WHERE id BETWEEN gap.lo AND gap.hi))
        ) AS o ORDER BY o.turn, o.id LIMIT :limit
        """,
        types,
    )
    return statement.bindparams(
        bindparam("first", type_=BigInteger),
        bindparam("window", type_=BigInteger),
        bindparam("lows", type_=ARRAY(BigInteger)),
        bindparam("highs", type_=ARRAY(BigInteger)),
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
        SELECT name, :upper, CAST(:taken AS jsonb), :owner, {_EXPIRY} FROM moved
        RETURNING {_LEASE}
        """
    ).bindparams(
        *_TYPES[:1],
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
        *_TYPES[:1],
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
                   :owner, {_EXPIRY}
            FROM due HAVING count(*) > 0 RETURNING {_LEASE}
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
        *_TYPES[:1],
        bindparam("by_age", type_=Boolean),
        bindparam("least", type_=Integer),
        bindparam("limit", type_=Integer),
        bindparam("owner", type_=Text),
        bindparam("duration", type_=Double),
    )


def read(tables: Tables, types: Sequence[str]) -> TextClause:
    """The events in the ranges :lows to :highs of the range :part, for whoever takes it over.

    Columns of an event, then attempts, crashes and state of its delivery, if it has a row in this
    range, and whether somebody asked to cancel it. Not one that was cancelled.
    """
    statement = bound(
        f"""
        SELECT {columns()}, true AS matches, coalesce(d.attempts, 0) AS attempts,
               coalesce(d.crashes, 0) AS earlier_crashes, coalesce(d.state, '') AS state,
               d.cancel_requested_at IS NOT NULL AS cancel_requested
        FROM unnest(:lows, :highs) AS gap (lo, hi)
        CROSS JOIN LATERAL (
            SELECT * FROM {log_name(tables)}
            WHERE id BETWEEN gap.lo AND gap.hi AND {matches(types)}
        ) AS o
        LEFT JOIN {quoted(tables.deliveries)} AS d
               ON d.listener = :name AND d.position = o.id
        WHERE d.state IS NULL OR (d.range = :part AND d.state <> 'cancelled')
        ORDER BY o.id
        """,
        types,
    )
    return statement.bindparams(
        *_TYPES[:2],
        bindparam("lows", type_=ARRAY(BigInteger)),
        bindparam("highs", type_=ARRAY(BigInteger)),
    )


def renew(tables: Tables) -> TextClause:
    """Renew the terms (:names, :parts, :tokens). A row for each that stands: name, part, paused."""
    return text(
        f"""
        UPDATE {quoted(tables.ranges)} AS r
        SET lease_expires_at = {_EXPIRY}, updated_at = clock_timestamp()
        FROM unnest(:names, :parts, :tokens) AS held (name, part, token)
        JOIN {quoted(tables.listeners)} AS l ON l.name = held.name AND l.partition = 0
        WHERE r.listener = held.name AND r.number = held.part AND r.lease_token = held.token
          AND r.locked_by IS NOT NULL
        RETURNING held.name, held.part, l.paused_at IS NOT NULL AS paused
        """
    ).bindparams(
        bindparam("names", type_=ARRAY(Text)),
        bindparam("parts", type_=ARRAY(BigInteger)),
        bindparam("tokens", type_=ARRAY(BigInteger)),
        bindparam("duration", type_=Double),
    )


def release(tables: Tables) -> TextClause:
    """Give the range (:name, :part, :token) back: free at once. Nothing if it is not ours."""
    return text(
        f"""
        UPDATE {quoted(tables.ranges)}
        SET locked_by = NULL, lease_expires_at = NULL, updated_at = clock_timestamp(),
            crashes = crashes + CASE WHEN :crashed THEN 1 ELSE 0 END
        WHERE listener = :name AND number = :part AND lease_token = :token
          AND locked_by IS NOT NULL
        RETURNING listener
        """
    ).bindparams(*_TYPES[:3], bindparam("crashed", type_=Boolean))


def advance(tables: Tables) -> TextClause:
    """Write which ids of the range are left: :gaps. One row if the term :token stands."""
    return text(
        f"""
        UPDATE {quoted(tables.ranges)}
        SET last_processed_id = :position, gaps = CAST(:gaps AS jsonb), revision = revision + 1,
            lease_expires_at = {_EXPIRY}, updated_at = clock_timestamp()
        WHERE {_TERM} RETURNING last_processed_id
        """
    ).bindparams(
        *_TYPES,
        bindparam("duration", type_=Double),
        bindparam("position", type_=BigInteger),
        bindparam("gaps", type_=Text),
    )


def finish(tables: Tables) -> TextClause:
    """Nothing is left of the range: delete it. One row if the term :token stood."""
    return text(
        f"DELETE FROM {quoted(tables.ranges)} WHERE {_TERM} RETURNING last_processed_id"
    ).bindparams(*_TYPES)


def mark(tables: Tables) -> TextClause:
    """Count that the event at :suspect is about to be attempted alone, before it is.

    Returns how many times in a row it was. If the process dies of it, the count stays.
    """
    return text(
        f"""
        UPDATE {quoted(tables.ranges)}
        SET suspect_count =
                CASE WHEN suspect_position = :suspect THEN suspect_count + 1 ELSE 1 END,
            suspect_position = :suspect, lease_expires_at = {_EXPIRY},
            updated_at = clock_timestamp()
        WHERE {_TERM} RETURNING suspect_count
        """
    ).bindparams(
        *_TYPES, bindparam("duration", type_=Double), bindparam("suspect", type_=BigInteger)
    )


def stand(tables: Tables) -> TextClause:
    """The range under the term :token, as a lease; no row if it is lost, or finished. Waits for a
    transaction that is about to write it: after a COMMIT whose answer was lost this tells what
    became of it."""
    return text(
        f"""
        SELECT {_LEASE} FROM {quoted(tables.ranges)}
        WHERE listener = :name AND number = :part AND lease_token = :token
          AND locked_by IS NOT NULL FOR UPDATE
        """
    ).bindparams(*_TYPES[:3])


def remember_error(tables: Tables) -> TextClause:
    """Note the listener's last error, for people to see. Passed by while somebody takes events."""
    listeners = quoted(tables.listeners)
    return text(
        f"""
        UPDATE {listeners} SET
            last_error_code = :code, last_error = :message, last_error_at = clock_timestamp()
        WHERE (name, partition) IN (
            SELECT name, partition FROM {listeners}
            WHERE name = :name AND partition = 0 FOR UPDATE SKIP LOCKED)
        """
    ).bindparams(*_TYPES[:1], bindparam("code", type_=Text), bindparam("message", type_=Text))
