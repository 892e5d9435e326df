"""Statements that cancel deliveries: for the caller, and for the consumer that runs one.

An event of a queue is unclaimed, in a delivery's row, in a range, or settled. The first two are
cancelled by whoever holds the lock of the row they are in; one in a range belongs to its holder,
who is asked through a row with ``cancel_requested_at`` and the range's number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import bindparam
from sqlalchemy.types import BigInteger, Text, Uuid

from ..log.matching import NONE_MET, filters, met
from ..server.names import log_name, quoted
from ..server.timed_text import text
from ..server.times import NOW
from .ranges import NEW_REVISION

if TYPE_CHECKING:
    from sqlalchemy import TextClause

    from ...database.tables import Tables

_ONE = (bindparam("listener", type_=Text), bindparam("position", type_=BigInteger))
_REASON = (bindparam("reason", type_=Text), bindparam("actor", type_=Text))
_ACTOR = "CAST(:actor AS jsonb)"
_COPIED = "listener, position, event_id, event_type, key, tenant, priority"
_REQUESTED = "d.range IS NOT NULL AND d.cancel_requested_at IS NOT NULL"
_IN_A_RANGE = "EXISTS (SELECT FROM {} AS r WHERE r.listener = d.listener AND r.number = d.range)"
_COPY = "SELECT :listener, o.id, o.event_id, o.event_type, o.key, o.tenant, o.priority"


def holds(gaps: str, position: str) -> str:
    """SQL: whether *gaps* (jsonb) contain *position*."""
    return (
        f"EXISTS (SELECT FROM jsonb_array_elements({gaps}) AS gap WHERE {position}"
        " BETWEEN CAST(gap ->> 0 AS bigint) AND CAST(gap ->> 1 AS bigint))"
    )


def find(tables: Tables, *, filtered: bool = False) -> TextClause:
    """Position and type of the event :event_id, and, if *filtered*, those of :filters that it meets
    (``met``); no row if it is not in the log. BRIN index."""
    known = met("payload") if filtered else NONE_MET
    statement = text(
        f"SELECT id AS position, event_type, {known} AS met"
        f" FROM {log_name(tables)} WHERE event_id = :event_id"
    ).bindparams(bindparam("event_id", type_=Uuid))
    return statement.bindparams(filters()) if filtered else statement


def withdraw(tables: Tables) -> TextClause:
    """Remove :position from what the queue :listener has not claimed. A row if it was there.

    Works like a claim, with a new revision, so that a concurrent claim finds nothing. Locks the
    queue's row until the transaction ends: nobody claims events meanwhile. Without a row nothing is
    locked. Primary key.
    """
    return text(
        f"""
        UPDATE {quoted(tables.listeners)} AS l SET
            last_processed_id = greatest(last_processed_id, :position),
            gaps = (
                SELECT coalesce(jsonb_agg(jsonb_build_array(part.lo, part.hi) ORDER BY part.lo),
                                CAST('[]' AS jsonb))
                FROM (
                    SELECT CAST(gap ->> 0 AS bigint) AS lo, CAST(gap ->> 1 AS bigint) AS hi
                    FROM jsonb_array_elements(l.gaps) AS gap
                    UNION ALL SELECT l.last_processed_id + 1, CAST(:position AS bigint)
                ) AS untaken
                CROSS JOIN LATERAL (VALUES
                    (untaken.lo, least(untaken.hi, :position - 1)),
                    (greatest(untaken.lo, :position + 1), untaken.hi)
                ) AS part (lo, hi)
                WHERE part.lo <= part.hi
            ),
            revision = {NEW_REVISION}, updated_at = {NOW}
        WHERE name = :listener AND partition = 0
          AND (last_processed_id < :position OR {holds("l.gaps", ":position")})
        RETURNING name
        """
    ).bindparams(*_ONE)


def is_registered(tables: Tables) -> TextClause:
    """A row if the database knows :listener."""
    return text(f"SELECT name FROM {quoted(tables.listeners)} WHERE name = :listener LIMIT 1")


def insert_cancelled(tables: Tables) -> TextClause:
    """Insert the row of a delivery that will never start."""
    return text(
        f"""
        INSERT INTO {quoted(tables.deliveries)}
            ({_COPIED}, state, cancel_requested_at, cancel_reason, cancel_actor)
        {_COPY}, 'cancelled', {NOW}, :reason, {_ACTOR}
        FROM {log_name(tables)} AS o WHERE o.id = :position
        """
    ).bindparams(*_ONE, *_REASON)


def lock(tables: Tables) -> TextClause:
    """State and range of the delivery, if it has a row. Locks that. Primary key."""
    return text(
        f"""
        SELECT state, range FROM {quoted(tables.deliveries)}
        WHERE listener = :listener AND position = :position FOR UPDATE
        """
    ).bindparams(*_ONE)


def cancel_waiting(tables: Tables) -> TextClause:
    """Cancel the delivery, whose row is locked and in no range. No row if it is in one."""
    return text(
        f"""
        UPDATE {quoted(tables.deliveries)} SET
            state = 'cancelled', cancel_requested_at = {NOW},
            cancel_reason = :reason, cancel_actor = {_ACTOR}, updated_at = {NOW}
        WHERE listener = :listener AND position = :position AND range IS NULL
          AND state IN ('scheduled', 'parked') RETURNING state
        """
    ).bindparams(*_ONE, *_REASON)


def cancel_scheduled(tables: Tables) -> TextClause:
    """Cancel a scheduled delivery of an ordered listener, whose holder marks nothing when it starts
    one. Before ``due_at`` it can't have started; later it may have, and the holder is only asked. A
    row with the state.

    The row must be locked by an earlier statement: only then can no holder read it between reading
    the clock and the end of the transaction.
    """
    return text(
        f"""
        UPDATE {quoted(tables.deliveries)} SET
            state = CASE WHEN due_at > {NOW} THEN 'cancelled' ELSE state END,
            cancel_requested_at = coalesce(cancel_requested_at, {NOW}),
            cancel_actor = CASE WHEN cancel_requested_at IS NULL THEN {_ACTOR}
                                ELSE cancel_actor END,
            cancel_reason = coalesce(cancel_reason, :reason), updated_at = {NOW}
        WHERE listener = :listener AND position = :position AND state = 'scheduled'
          AND range IS NULL RETURNING state
        """
    ).bindparams(*_ONE, *_REASON)


def range_of(tables: Tables) -> TextClause:
    """The number of the range of the queue :listener that contains :position, if any.

    Takes no lock: a caller that is slow to commit must not keep a range from being renewed or
    settled. So the range may be gone when the request is made; see ``forget``. Few rows: the ranges
    of one listener.
    """
    return text(
        f"""
        SELECT number FROM {quoted(tables.ranges)} AS r
        WHERE r.listener = :listener AND {holds("r.gaps", ":position")}
        """
    ).bindparams(*_ONE)


def request(tables: Tables) -> TextClause:
    """Ask whoever holds the range :part to cancel the delivery. A row with its state.

    A row that is no longer in a range (it failed in between, and waits) is cancelled. Without a row
    one is created; it is removed when the delivery is settled. Primary key.
    """
    return text(
        f"""
        INSERT INTO {quoted(tables.deliveries)} AS d
            ({_COPIED}, state, due_at, range, cancel_requested_at, cancel_reason, cancel_actor)
        {_COPY}, 'scheduled', {NOW}, :part, {NOW}, :reason, {_ACTOR}
        FROM {log_name(tables)} AS o WHERE o.id = :position
        ON CONFLICT (listener, position) DO UPDATE SET
            state = CASE WHEN d.range IS NULL THEN 'cancelled' ELSE d.state END,
            cancel_requested_at = coalesce(d.cancel_requested_at, excluded.cancel_requested_at),
            cancel_actor = CASE WHEN d.cancel_requested_at IS NULL THEN excluded.cancel_actor
                                ELSE d.cancel_actor END,
            cancel_reason = coalesce(d.cancel_reason, excluded.cancel_reason),
            updated_at = {NOW}
        RETURNING d.state
        """
    ).bindparams(*_ONE, *_REASON, bindparam("part", type_=BigInteger))


def dead(tables: Tables) -> TextClause:
    """A row if the delivery is a dead letter that was not replayed."""
    return text(
        f"""
        SELECT id FROM {quoted(tables.dead_letters)}
        WHERE listener = :listener AND position = :position
          AND resolution IS DISTINCT FROM 'replayed' LIMIT 1
        """
    ).bindparams(*_ONE)


def requested(tables: Tables) -> TextClause:
    """What holders of the queue :listener are asked to cancel: position, part, and is_over, for a
    range that is gone. Served by an index that contains only requests."""
    return text(
        f"""
        SELECT d.position, d.range AS part, NOT {_IN_A_RANGE.format(quoted(tables.ranges))}
            AS is_over
        FROM {quoted(tables.deliveries)} AS d WHERE d.listener = :listener AND {_REQUESTED}
        """
    ).bindparams(_ONE[0])


def forget(tables: Tables) -> TextClause:
    """Delete the requests of the queue :listener whose range is gone: they came when their events
    were being settled, and nobody will answer.

    The requester has seen the range, and whoever ended it has settled all of it. Until then such a
    row only keeps its event from being pruned: it is in a range, so nobody claims it. Skips locked
    ones. Served by the index that contains only requests.
    """
    deliveries = quoted(tables.deliveries)
    return text(
        f"""
        DELETE FROM {deliveries} WHERE (listener, position) IN (
            SELECT d.listener, d.position FROM {deliveries} AS d
            WHERE d.listener = :listener AND {_REQUESTED}
              AND NOT {_IN_A_RANGE.format(quoted(tables.ranges))}
            FOR UPDATE SKIP LOCKED)
        """
    ).bindparams(_ONE[0])
