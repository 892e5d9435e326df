"""Statements on the ranges of queues: events that one process has claimed, under a lease.

Every write under a range's lease has its token, its owner and its revision in the WHERE, like those
of a listener's cursor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import bindparam
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.types import BigInteger, Boolean, Double, Integer, Text

from ..listener.renewal import RENEWED
from ..listener.suspects import CRASHED
from ..log import large_events
from ..log.matching import bound, matches
from ..log.reads import event_of
from ..server.names import log_name, quoted
from ..server.timed_text import text
from ..server.times import NOW
from ..server.transactions import BOUND

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import TextClause

    from ...database.tables import Tables

_TERM = (
    "listener = :name AND number = :part AND lease_token = :token AND last_processed_id = :old"
    " AND revision = :revision AND locked_by = :owner"
)
_TYPES = (
    bindparam("name", type_=Text),
    bindparam("part", type_=BigInteger),
    bindparam("token", type_=BigInteger),
    bindparam("old", type_=BigInteger),
    bindparam("revision", type_=BigInteger),
    bindparam("owner", type_=Text),
)
LEASE = """
    listener AS name, number AS part, 0 AS partition, lease_token AS token,
    last_processed_id AS position, CAST(gaps AS text) AS gaps, revision, 0 AS retry_count,
    CAST(NULL AS bigint) AS retry_position, CAST(NULL AS float8) AS retry_in, crashes,
    CAST(NULL AS text) AS fingerprint, CAST(suspects AS text) AS suspects, locked_by AS owner"""
_RANDOM = "CAST(trunc(random() * 2 ^ 52) AS bigint)"
FIRST_TERM = _RANDOM
"""Token of a new range. Random: a server that lost commits reuses the numbers of lost ranges, and a
process that has not noticed yet could settle the new ones under an old term."""
NEW_REVISION = _RANDOM
"""Revision of a queue's row after a write. Random: whoever remembers a write that the server lost
finds this revision never again. Counted, the writes that come instead would reach it."""


def claim(tables: Tables) -> TextClause:
    """Claim up to :limit ranges of the queue :name that are free or expired, for :owner. None of
    those in :held.

    Columns of a lease. Locks the rows it claims and skips locked ones.
    """
    ranges = quoted(tables.ranges)
    return text(
        f"""
        WITH free AS MATERIALIZED (
            SELECT listener AS of, number AS which,
                locked_by IS NOT NULL AND locked_by <> :owner AS crashed FROM {ranges}
            WHERE listener = :name
              AND (locked_by IS NULL OR lease_expires_at <= {NOW})
              AND NOT number = ANY (:held)
            ORDER BY number LIMIT :limit FOR UPDATE SKIP LOCKED
        )
        UPDATE {ranges} SET
            locked_by = :owner, lease_token = lease_token + 1, {RENEWED},
            crashes = crashes + CASE WHEN free.crashed THEN 1 ELSE 0 END,
            crashed_terms = CASE WHEN free.crashed THEN {CRASHED.format("lease_token")}
                                 ELSE crashed_terms END
        FROM free WHERE listener = free.of AND number = free.which
        RETURNING {LEASE}
        """
    ).bindparams(
        bindparam("name", type_=Text),
        bindparam("owner", type_=Text),
        bindparam("duration", type_=Double),
        bindparam("limit", type_=Integer),
        bindparam("held", type_=ARRAY(BigInteger)),
    )


def read(tables: Tables, types: Sequence[str]) -> TextClause:
    """The events in the ranges :lows to :highs of the range :part, for whoever takes it over.

    Columns of an event, then attempts and state of its delivery, if it has a row in this
    range, and whether somebody asked to cancel it. Not one that was cancelled. Replays come from
    their dead letters. A careful read without a budget: one lease covers all of them.
    """
    known = """coalesce(d.attempts, 0) AS attempts, coalesce(d.state, '') AS state,
        d.cancel_requested_at IS NOT NULL AS cancel_requested"""
    deliveries = quoted(tables.deliveries)
    columns = large_events.readable_columns("o")
    inner = f"""
        SELECT {columns}, true AS matches, {known}
        FROM unnest(:lows, :highs) AS gap (lo, hi)
        CROSS JOIN LATERAL (
            SELECT * FROM {log_name(tables)}
            WHERE id BETWEEN gap.lo AND gap.hi AND {matches(types)}
        ) AS o
        LEFT JOIN {deliveries} AS d ON d.listener = :name AND d.position = o.id
        WHERE d.state IS NULL
           OR (d.range = :part AND d.state <> 'cancelled' AND d.dead_letter IS NULL)
        UNION ALL
        SELECT {columns}, true, {known}
        FROM unnest(:lows, :highs) AS gap (lo, hi)
        JOIN {deliveries} AS d ON d.listener = :name AND d.position BETWEEN gap.lo AND gap.hi
         AND d.range = :part AND d.state <> 'cancelled' AND d.dead_letter IS NOT NULL
        CROSS JOIN LATERAL {event_of(tables)} AS o
        OFFSET 0"""
    more = ", e.attempts, e.state, e.cancel_requested"
    statement = bound(large_events.careful(inner, more=more), types)
    return large_events.limited(statement, budget=large_events.UNBOUNDED).bindparams(
        *_TYPES[:2],
        bindparam("lows", type_=ARRAY(BigInteger)),
        bindparam("highs", type_=ARRAY(BigInteger)),
    )


def release(tables: Tables) -> TextClause:
    """Release the range (:name, :part, :token) of :owner: free at once. No effect if it is not
    ours."""
    return text(
        f"""
        UPDATE {quoted(tables.ranges)}
        SET locked_by = NULL, lease_expires_at = NULL, updated_at = {NOW},
            crashes = crashes + CASE WHEN :crashed THEN 1 ELSE 0 END,
            crashed_terms = CASE WHEN :crashed THEN {CRASHED.format("lease_token")}
                                 ELSE crashed_terms END
        WHERE listener = :name AND number = :part AND lease_token = :token
          AND locked_by = :owner
        RETURNING listener
        """
    ).bindparams(*_TYPES[:3], bindparam("crashed", type_=Boolean), bindparam("owner", type_=Text))


def advance(tables: Tables) -> TextClause:
    """Write which ids of the range are left: :gaps. One row if the term :token is still valid."""
    return text(
        f"""
        UPDATE {quoted(tables.ranges)}
        SET last_processed_id = :position, gaps = CAST(:gaps AS jsonb), revision = revision + 1,
            {RENEWED}
        WHERE {_TERM} RETURNING last_processed_id, {BOUND}
        """
    ).bindparams(
        *_TYPES,
        bindparam("duration", type_=Double),
        bindparam("position", type_=BigInteger),
        bindparam("gaps", type_=Text),
    )


def finish(tables: Tables) -> TextClause:
    """Nothing is left of the range: delete it. One row if the term :token was still valid."""
    return text(
        f"DELETE FROM {quoted(tables.ranges)} WHERE {_TERM} RETURNING last_processed_id, {BOUND}"
    ).bindparams(*_TYPES, bindparam("duration", type_=Double))


def stand(tables: Tables) -> TextClause:
    """The range under the term :token, as a lease; no row if it is lost, or finished. Waits for a
    transaction that is about to write it: after a COMMIT whose answer was lost this shows whether
    it happened."""
    return text(
        f"""
        SELECT {LEASE} FROM {quoted(tables.ranges)}
        WHERE listener = :name AND number = :part AND lease_token = :token
          AND locked_by = :owner FOR UPDATE
        """
    ).bindparams(*_TYPES[:3], bindparam("owner", type_=Text))


def remember_error(tables: Tables) -> TextClause:
    """Record the listener's last error, for display. Skipped while someone claims events."""
    listeners = quoted(tables.listeners)
    return text(
        f"""
        UPDATE {listeners} SET
            last_error_code = :code, last_error = :message, last_error_at = {NOW}
        WHERE (name, partition) IN (
            SELECT name, partition FROM {listeners}
            WHERE name = :name AND partition = 0 FOR UPDATE SKIP LOCKED)
        """
    ).bindparams(*_TYPES[:1], bindparam("code", type_=Text), bindparam("message", type_=Text))
