"""Statements on deliveries that have a row, and on dead letters.

They run in one transaction with the statement that moves the cursor, which has the token of the
lease: if that one finds no row, the transaction is rolled back and none of these happened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import bindparam
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.types import BigInteger, Integer, Text

from ..log.large_events import in_ascii
from ..log.reads import event_of
from ..server.names import log_name, quoted
from ..server.timed_text import text
from ..server.times import NOW
from .cursors import with_error

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import TextClause

    from ...database.tables import Tables


def park(tables: Tables) -> TextClause:
    """Set the deliveries in :document (JSON array) aside for :listener, partition :part, or update
    those that already are.

    Each has: position, state, delay (seconds), attempts, failure (an object, or null). What is
    copied from the event stays readable when the log is pruned. A delivery with a cancellation
    request is cancelled, whatever the document says: there is no next attempt. Primary keys.

    If it has a row, it is copied from that: the event of a replay may be gone from the log.
    """
    deliveries = quoted(tables.deliveries)
    errors = with_error("d.errors", "excluded.errors -> 0")
    return text(
        f"""
        INSERT INTO {deliveries} AS d (
            listener, partition, position, event_id, event_type, key, tenant, priority, state,
            due_at, attempts, errors, last_error_code, last_error)
        SELECT :listener, :part, p.position, coalesce(e.event_id, o.event_id),
               coalesce(e.event_type, o.event_type), coalesce(e.key, o.key),
               coalesce(e.tenant, o.tenant), coalesce(e.priority, o.priority), p.state,
               CASE WHEN p.delay IS NOT NULL
                    THEN {NOW} + make_interval(secs => p.delay) END,
               p.attempts,
               CASE WHEN p.failure IS NULL THEN CAST('[]' AS jsonb)
                    ELSE {with_error("CAST('[]' AS jsonb)", "p.failure")} END,
               p.failure ->> 'code', p.failure ->> 'message'
        FROM jsonb_to_recordset(CAST(:document AS jsonb)) AS p (
            position bigint, state text, delay float8, attempts integer, failure jsonb)
        LEFT JOIN {deliveries} AS e ON e.listener = :listener AND e.position = p.position
        LEFT JOIN {log_name(tables)} AS o ON o.id = p.position AND e.position IS NULL
        WHERE e.position IS NOT NULL OR o.id IS NOT NULL
        ON CONFLICT (listener, position) DO UPDATE SET
            state = CASE WHEN d.cancel_requested_at IS NULL THEN excluded.state
                         ELSE 'cancelled' END,
            due_at = excluded.due_at, attempts = excluded.attempts,
            range = NULL,
            errors = CASE WHEN excluded.errors = '[]' THEN d.errors ELSE {errors} END,
            last_error_code = excluded.last_error_code, last_error = excluded.last_error,
            updated_at = {NOW}
        """
    ).bindparams(
        bindparam("listener", type_=Text),
        bindparam("part", type_=Integer),
        bindparam("document", type_=Text),
    )


def bury(tables: Tables) -> TextClause:
    """Make the deliveries in :document (JSON array) of :listener dead letters.

    Each has: position, reason, attempts, crashes, failure (an object, or null). The copy of the
    event outlives retention; for a replay it is a copy of the copy. The errors of earlier attempts
    come from the delivery's row, or from the listener's (``order="total"``). Primary keys.

    Nothing passes through Python: what can't be read there is still copied. no_payload, no_headers
    and no_texts say what can't be copied either. Then the payload is JSON null, the headers are
    empty, and event type, key and tenant contain what can be shown of them.
    """
    earlier = (
        "coalesce(d.errors, CASE WHEN l.retry_position = b.position THEN l.errors END,"
        " CAST('[]' AS jsonb))"
    )
    return text(
        f"""
        INSERT INTO {quoted(tables.dead_letters)} (
            listener, position, event_id, event_type, key, tenant, payload, headers, run_at,
            priority, event_created_at, reason, attempts, crashes, errors, error_fingerprint)
        SELECT :listener, o.id, o.event_id, {_unless("texts", "event_type", in_ascii)},
               {_unless("texts", "key", in_ascii)}, {_unless("texts", "tenant", in_ascii)},
               {_unless("payload", "payload", lambda _: "CAST('null' AS jsonb)")},
               {_unless("headers", "headers", lambda _: "CAST('{}' AS jsonb)")},
               o.run_at, o.priority, o.created_at, b.reason, b.attempts, b.crashes,
               CASE WHEN b.failure IS NULL THEN {earlier}
                    ELSE {with_error(earlier, "b.failure")} END,
               coalesce(b.failure, {earlier} -> -1) ->> 'fingerprint'
        FROM jsonb_to_recordset(CAST(:document AS jsonb)) AS b (
            position bigint, reason text, attempts integer, crashes integer, failure jsonb,
            no_payload boolean, no_headers boolean, no_texts boolean)
        JOIN {quoted(tables.listeners)} AS l ON l.name = :listener AND l.partition = 0
        LEFT JOIN {quoted(tables.deliveries)} AS d
               ON d.listener = :listener AND d.position = b.position
        CROSS JOIN LATERAL {event_of(tables, position="b.position")} AS o
        ORDER BY o.id
        """
    ).bindparams(bindparam("listener", type_=Text), bindparam("document", type_=Text))


def _unless(part: str, column: str, otherwise: Callable[[str], str]) -> str:
    return f"CASE WHEN b.no_{part} THEN {otherwise(f'o.{column}')} ELSE o.{column} END"


def settle(tables: Tables) -> TextClause:
    """Delete the rows of the deliveries :positions of :listener: they are done, or dead."""
    return text(
        f"DELETE FROM {quoted(tables.deliveries)}"
        " WHERE listener = :listener AND position = ANY (:positions)"
    ).bindparams(bindparam("positions", type_=ARRAY(BigInteger)))


def leave_results(tables: Tables) -> TextClause:
    """Store the results left by handlers of :listener, in :document (JSON array).

    Each has: event_id, result_ref, lifetime (seconds). In order of ids, so that two writers can't
    deadlock. Primary key.
    """
    return text(
        f"""
        INSERT INTO {quoted(tables.results)} AS r (event_id, listener, result_ref, expires_at)
        SELECT event_id, :listener, result_ref,
               {NOW} + make_interval(secs => lifetime)
        FROM jsonb_to_recordset(CAST(:document AS jsonb)) AS p (
            event_id uuid, result_ref text, lifetime float8)
        ORDER BY event_id
        ON CONFLICT (event_id, listener) DO UPDATE SET
            result_ref = excluded.result_ref, recorded_at = {NOW},
            expires_at = excluded.expires_at
        """
    ).bindparams(bindparam("listener", type_=Text), bindparam("document", type_=Text))


def promote(tables: Tables) -> TextClause:
    """Make the first delivery of each of the :keys due, if it waits behind one that is gone.

    Served by the index on keys.
    """
    deliveries = quoted(tables.deliveries)
    return text(
        f"""
        UPDATE {deliveries} AS d
        SET state = 'parked', due_at = {NOW}, updated_at = {NOW}
        FROM unnest(:keys) AS freed (key)
        WHERE d.listener = :listener AND d.key = freed.key AND d.state = 'behind'
          AND d.position = (
              SELECT min(position) FROM {deliveries} AS first
              WHERE first.listener = :listener AND first.key = freed.key
                AND first.state IN ('parked', 'behind'))
        """
    ).bindparams(bindparam("keys", type_=ARRAY(Text)))


def occupied(tables: Tables) -> TextClause:
    """The keys of :listener, partition :part, that have a parked delivery; includes None for one
    without a key.

    Served by the primary key.
    """
    return text(
        f"""
        SELECT DISTINCT key FROM {quoted(tables.deliveries)}
        WHERE listener = :listener AND partition = :part AND state IN ('parked', 'behind')
        """
    )


def next_due(tables: Tables) -> TextClause:
    """Seconds until the next delivery of :listener, partition :part, is due, negative if one
    already is; None if there is none.

    One row, with whether there are any rows at all. Served by the index on due deliveries.
    """
    return text(
        f"""
        SELECT CAST(extract(epoch FROM min(due_at) - {NOW}) AS float8)
        FROM {quoted(tables.deliveries)}
        WHERE listener = :listener AND partition = :part
          AND state IN ('scheduled', 'parked') AND range IS NULL
          AND NOT position = ANY (:taken)
        """
    ).bindparams(bindparam("taken", type_=ARRAY(BigInteger)))


def next_due_of_all(tables: Tables, *, ranges: bool) -> TextClause:
    """One row for the listeners :names, without those that are paused. own: the seconds until a
    delivery is due, or the retry of an event that one of them waits at; others: until a lease of
    somebody else than :owner expires, or the announcement of another consumer of one of them. None:
    never.

    With *ranges*, of those too: a role without queues may have no rights on them. Takes no locks.
    Served by the index on due deliveries; the rest are small tables.
    """
    listeners = quoted(tables.listeners)
    others = [
        f"""(SELECT min(lease_expires_at) FROM {listeners}
             WHERE name = ANY (:names) AND locked_by <> :owner AND lease_expires_at > {NOW})""",
        f"""(SELECT min(expires_at) FROM {quoted(tables.consumers)}
             WHERE (listeners && :names OR queues && :names)
               AND owner <> :owner AND expires_at > {NOW})""",
    ]
    if ranges:
        others.append(
            f"""(SELECT min(lease_expires_at) FROM {quoted(tables.ranges)}
             WHERE listener = ANY (:names) AND locked_by <> :owner AND lease_expires_at > {NOW})"""
        )
    return text(
        f"""
        WITH active AS (
            SELECT * FROM {listeners} WHERE name = ANY (:names) AND paused_at IS NULL)
        SELECT
            CAST(extract(epoch FROM least(
                (SELECT min(d.due_at) FROM {quoted(tables.deliveries)} AS d
                 JOIN active ON active.name = d.listener AND active.partition = d.partition
                 WHERE d.state IN ('scheduled', 'parked') AND d.range IS NULL),
                (SELECT min(retry_after) FROM active WHERE retry_count > 0)) - {NOW}) AS float8)
                AS own,
            CAST(extract(epoch FROM least({", ".join(others)}) - {NOW}) AS float8) AS others
        """
    ).bindparams(bindparam("names", type_=ARRAY(Text)), bindparam("owner", type_=Text))
