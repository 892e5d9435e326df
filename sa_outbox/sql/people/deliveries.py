"""Statements on deliveries that wait, for operators: which there are, and making one due.

Each page is bounded: it begins at the last row of the page before, and examines a number of rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import bindparam
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.types import BigInteger, Integer, Text

from ..server.names import log_name, quoted
from ..server.timed_text import text
from ..server.times import NOW

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import TextClause

    from ...database.tables import Tables

LONGEST_ERROR = 500
"""Characters of an error that a list shows."""
# A time that no driver can represent (infinity) is omitted, instead of failing the whole page.
_FINITE = "CASE WHEN {0} BETWEEN '0001-01-02' AND '9999-01-01' THEN {0} END"
_CONDITIONS = {
    "listener": "d.listener = :listener",
    "event_type": "d.event_type = :event_type",
    "tenant": "d.tenant = :tenant",
    "key": "d.key = :key",
    "running": "d.range IS NOT NULL AND d.state <> 'cancelled'",
    "parked": "d.range IS NULL AND d.state = 'parked'",
    "scheduled": "d.range IS NULL AND d.state = 'scheduled'",
    "behind": "d.state = 'behind'",
    "cancelled": "d.state = 'cancelled'",
    "failed": "d.range IS NULL AND (d.state = 'parked' OR d.state = 'scheduled')"
    " AND d.attempts > 0",
}
_TEXTS = ("listener", "event_type", "tenant", "key")
_BEYOND = (
    bindparam("after_listener", type_=Text),
    bindparam("after_position", type_=BigInteger),
    bindparam("examined", type_=Integer),
)
_PAIRS = (
    bindparam("listeners", type_=ARRAY(Text)),
    bindparam("positions", type_=ARRAY(BigInteger)),
)


def waiting(tables: Tables, given: Sequence[str]) -> TextClause:
    """Up to :limit deliveries beyond (:after_listener, :after_position) that match the named
    conditions *given*, by listener and position, among the next :examined.

    Each with whoever holds the range it is in: owner, lease_seconds (None: nobody). Takes no locks.
    The primary key, in its order; and that of the ranges for each row.
    """
    return _typed(
        f"""
        SELECT d.listener, d.position, d.event_id, d.event_type, d.key, d.tenant, d.priority,
            d.state, {_FINITE.format("d.due_at")} AS due_at, d.attempts, d.last_error_code,
            left(d.last_error, {LONGEST_ERROR}) AS last_error, d.range IS NOT NULL AS claimed,
            d.cancel_requested_at IS NOT NULL AS cancel_requested,
            left(d.cancel_reason, {LONGEST_ERROR}) AS cancel_reason, d.dead_letter,
            {_FINITE.format("d.updated_at")} AS updated_at,
            CASE WHEN r.lease_expires_at > {NOW} THEN r.locked_by END AS owner
        FROM (
            SELECT * FROM (
                SELECT * FROM {quoted(tables.deliveries)} AS d
                WHERE (d.listener, d.position) > (:after_listener, :after_position)
                    {_only_of_listener(given)}
                ORDER BY d.listener, d.position LIMIT :examined
            ) AS d
            WHERE true{"".join(f" AND {_CONDITIONS[each]}" for each in given)}
            ORDER BY d.listener, d.position LIMIT :limit
        ) AS d
        LEFT JOIN {quoted(tables.ranges)} AS r ON r.listener = d.listener AND r.number = d.range
        ORDER BY d.listener, d.position
        """,
        given,
    ).bindparams(*_BEYOND, bindparam("limit", type_=Integer))


def last_examined(tables: Tables, given: Sequence[str]) -> TextClause:
    """The last delivery that ``waiting`` examines, if there are as many: listener, position. The
    primary key."""
    return _typed(
        f"""
        SELECT d.listener, d.position FROM {quoted(tables.deliveries)} AS d
        WHERE (d.listener, d.position) > (:after_listener, :after_position)
            {_only_of_listener(given)}
        ORDER BY d.listener, d.position OFFSET :examined - 1 LIMIT 1
        """,
        [each for each in given if each == "listener"],
    ).bindparams(*_BEYOND)


def values_of(tables: Tables, column: str) -> TextClause:
    """Up to :most values that *column* (event_type, tenant) has in the first :examined deliveries,
    of :listener unless that is NULL. Sorted. The primary key."""
    return text(
        f"""
        SELECT DISTINCT few.value FROM (
            SELECT d.{column} AS value FROM {quoted(tables.deliveries)} AS d
            WHERE :listener IS NULL OR d.listener = :listener
            ORDER BY d.listener, d.position LIMIT :examined
        ) AS few WHERE few.value IS NOT NULL ORDER BY few.value LIMIT :most
        """
    ).bindparams(
        bindparam("listener", type_=Text),
        bindparam("examined", type_=Integer),
        bindparam("most", type_=Integer),
    )


def held(tables: Tables) -> TextClause:
    """The events for which listeners with order="total" wait, up to :limit: listener, partition,
    position, event_id, event_type, key, tenant, due_at, attempts, last_error_code, last_error.

    Takes no locks. A small table, and an event of the log for each row.
    """
    return text(
        f"""
        SELECT l.name AS listener, l.partition, l.retry_position AS position, o.event_id,
            o.event_type, o.key, o.tenant, {_FINITE.format("l.retry_after")} AS due_at,
            l.retry_count AS attempts, l.last_error_code,
            left(l.last_error, {LONGEST_ERROR}) AS last_error
        FROM {quoted(tables.listeners)} AS l
        LEFT JOIN {log_name(tables)} AS o ON o.id = l.retry_position
        WHERE l.retry_position IS NOT NULL ORDER BY l.name, l.partition LIMIT :limit
        """
    ).bindparams(bindparam("limit", type_=Integer))


def working(tables: Tables) -> TextClause:
    """Up to :limit leases of cursors that have not expired: listener, number (the partition),
    owner, lease_seconds, position. Ranges of queues: see ``claims.claimed_ranges``.

    Takes no locks. A small table.
    """
    return text(
        f"""
        SELECT name AS listener, partition AS number, locked_by AS owner,
            CAST(extract(epoch FROM lease_expires_at - {NOW}) AS float8) AS lease_seconds,
            last_processed_id AS position
        FROM {quoted(tables.listeners)}
        WHERE locked_by IS NOT NULL AND lease_expires_at > {NOW}
        ORDER BY name, partition LIMIT :limit
        """
    ).bindparams(bindparam("limit", type_=Integer))


def retry(tables: Tables) -> TextClause:
    """Make the deliveries (:listeners, :positions) due now, and record that :who did so and :why. A
    row for each that there is: listener, position and outcome.

    ``retried``: it waited, and is due now. Otherwise it is unchanged. ``running``: a process of a
    queue has claimed it. ``due``: it was due already, so a process may just be attempting it.
    ``behind``: an earlier event of its key waits, and comes first. ``cancelled``.

    Locks the rows, in order: whoever settles one of them is waited for. The clock is read under the
    lock, so no holder reads a row as due between that and the end of the transaction (``read_due``
    skips locked rows). Primary key, and the index on keys.
    """
    deliveries = quoted(tables.deliveries)
    return text(
        f"""
        WITH locked AS MATERIALIZED (
            SELECT d.listener, d.position, d.state, d.key, d.range, d.due_at
            FROM unnest(:listeners, :positions) AS w (listener, position)
            JOIN {deliveries} AS d ON d.listener = w.listener AND d.position = w.position
            ORDER BY d.listener, d.position FOR UPDATE OF d
        ), decided AS MATERIALIZED (
            SELECT d.listener, d.position, d.due_at, CASE
                WHEN d.state = 'cancelled' THEN 'cancelled'
                WHEN d.range IS NOT NULL THEN 'running'
                WHEN d.state = 'behind' THEN 'behind'
                WHEN d.due_at <= {NOW} THEN 'due'
                WHEN d.state = 'parked' AND d.key IS NOT NULL AND EXISTS (
                    SELECT FROM {deliveries} AS earlier
                    WHERE earlier.listener = d.listener AND earlier.key = d.key
                      AND earlier.position < d.position AND earlier.state IN ('parked', 'behind'))
                    THEN 'behind'
                ELSE 'retried' END AS outcome
            FROM locked AS d
        ), changed AS (
            UPDATE {deliveries} AS d SET due_at = {NOW}, updated_at = {NOW}
            FROM decided AS c
            WHERE d.listener = c.listener AND d.position = c.position AND c.outcome = 'retried'
            RETURNING d.listener, d.position, d.event_id, d.event_type, d.tenant, d.attempts,
                c.due_at AS was_due_at
        ), recorded AS ({_recorded(tables, "changed")})
        SELECT listener, position, outcome FROM decided
        """
    ).bindparams(*_PAIRS, *_OPERATOR)


def retry_held(tables: Tables) -> TextClause:
    """``retry`` for the events (:listeners, :positions) that listeners with order="total" wait for:
    their next attempt is due now. A row for each that there is: listener, position and outcome,
    ``retried`` or ``due``.

    The holder has the time in memory: it loses its lease, and the next one begins with the event.
    Locks the listeners' rows, in order.
    """
    listeners = quoted(tables.listeners)
    return text(
        f"""
        WITH locked AS MATERIALIZED (
            SELECT l.name, l.partition, l.retry_position, l.retry_after
            FROM unnest(:listeners, :positions) AS w (listener, position)
            JOIN {listeners} AS l ON l.name = w.listener AND l.retry_position = w.position
            ORDER BY l.name, l.partition FOR UPDATE OF l
        ), decided AS MATERIALIZED (
            SELECT l.name, l.partition, l.retry_position, l.retry_after AS was_due_at,
                CASE WHEN coalesce(l.retry_after <= {NOW}, true) THEN 'due' ELSE 'retried' END
                    AS outcome
            FROM locked AS l
        ), changed AS (
            UPDATE {listeners} AS l
            SET retry_after = {NOW}, lease_token = l.lease_token + 1, locked_by = NULL,
                lease_expires_at = NULL, updated_at = {NOW}
            FROM decided AS c
            WHERE l.name = c.name AND l.partition = c.partition AND c.outcome = 'retried'
            RETURNING l.name, l.retry_position, l.retry_count, c.was_due_at
        ), described AS (
            SELECT c.name AS listener, c.retry_position AS position, o.event_id, o.event_type,
                o.tenant, c.retry_count AS attempts, c.was_due_at
            FROM changed AS c LEFT JOIN {log_name(tables)} AS o ON o.id = c.retry_position
        ), recorded AS ({_recorded(tables, "described")})
        SELECT name AS listener, retry_position AS position, outcome FROM decided
        """
    ).bindparams(*_PAIRS, *_OPERATOR)


def states(tables: Tables) -> TextClause:
    """Of the deliveries (:listeners, :positions) that have a row or whose event is in the log:
    listener, position, state (NULL: no row). Takes no locks. Primary keys."""
    return text(
        f"""
        SELECT w.listener, w.position, d.state
        FROM unnest(:listeners, :positions) AS w (listener, position)
        LEFT JOIN {quoted(tables.deliveries)} AS d
          ON d.listener = w.listener AND d.position = w.position
        WHERE d.position IS NOT NULL
           OR EXISTS (SELECT FROM {log_name(tables)} AS o WHERE o.id = w.position)
        """
    ).bindparams(*_PAIRS)


def of_queues(tables: Tables) -> TextClause:
    """Those of :listeners that are queues: the order that a consumer has recorded is one of
    :orders. Without a record, as far as the database knows: a live process has announced it, or has
    claimed events. Small tables."""
    return text(
        f"""
        SELECT w.name FROM unnest(:listeners) AS w (name)
        LEFT JOIN LATERAL (SELECT min(l.ordering) AS ordering FROM {quoted(tables.listeners)} AS l
                           WHERE l.name = w.name) AS known ON true
        WHERE known.ordering = ANY (:orders) OR known.ordering IS NULL AND (
            EXISTS (SELECT FROM {quoted(tables.consumers)} AS c WHERE w.name = ANY (c.queues))
            OR EXISTS (SELECT FROM {quoted(tables.ranges)} AS r WHERE r.listener = w.name))
        """
    ).bindparams(bindparam("listeners", type_=ARRAY(Text)), bindparam("orders", type_=ARRAY(Text)))


_OPERATOR = (bindparam("who", type_=Text), bindparam("why", type_=Text))


def _recorded(tables: Tables, source: str) -> str:
    """SQL: one line of the audit for each row of *source*."""
    return f"""
        INSERT INTO {quoted(tables.audit)} (action, event_id, event_type, listener, tenant,
            actor_type, actor_id, attempt, detail)
        SELECT 'retried now', event_id, event_type, listener, tenant, 'operator', :who, attempts,
            jsonb_strip_nulls(jsonb_build_object(
                'position', position, 'was_due_at', was_due_at, 'why', :why))
        FROM {source} ORDER BY listener, position"""


def _only_of_listener(given: Sequence[str]) -> str:
    return f"AND {_CONDITIONS['listener']}" if "listener" in given else ""


def _typed(statement: str, given: Sequence[str]) -> TextClause:
    texts = (bindparam(name, type_=Text) for name in _TEXTS if name in given)
    return text(statement).bindparams(*texts)
