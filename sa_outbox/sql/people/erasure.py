"""Statements that erase one event, wherever the outbox has a copy of it.

Run in one transaction, in READ COMMITTED, in this order: prevent changes of partitions, find the
event, lock everything that could lead a consumer to it, check who may be handling it, then delete
it. Whoever claims or reads a delivery skips what is locked, or waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import bindparam
from sqlalchemy.types import BigInteger, Text, Uuid

from ..queue.cancellation import holds
from ..queue.ranges import NEW_REVISION
from ..server.names import log_name, quoted
from ..server.timed_text import text
from ..server.times import NOW

if TYPE_CHECKING:
    from sqlalchemy import TextClause

    from ...database.tables import Tables

_POSITION = bindparam("position", type_=BigInteger)
_EVENT = bindparam("event_id", type_=Uuid)
_UNTAKEN = "(l.last_processed_id < :position OR {})"


def find(tables: Tables, *, by_position: bool) -> TextClause:
    """Event_id, position and event_type of the event in the log; is_moving: its table is about to
    be replaced by one with a copy. No row if it is not there. Primary key, or BRIN index."""
    column, name = ("id", "position") if by_position else ("event_id", "event_id")
    log = log_name(tables)
    return text(
        f"""
        SELECT o.event_id, o.id AS position, o.event_type,
            (SELECT pg_get_expr(relpartbound, 0) = 'DEFAULT' FROM pg_catalog.pg_class
             WHERE oid = o.tableoid)
            AND EXISTS (
                SELECT FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_constraint AS k
                  ON k.conrelid = c.oid AND k.conname = c.relname || '_range_check'
                WHERE c.relname ~ '^{tables.outbox.name}_p[0-9]+$' AND NOT c.relispartition
                  AND c.relnamespace = (SELECT relnamespace FROM pg_catalog.pg_class
                                        WHERE oid = CAST('{log}' AS regclass))) AS is_moving
        FROM {log} AS o WHERE o.{column} = :{name} LIMIT 1
        """
    ).bindparams(_POSITION if by_position else _EVENT)


def find_copy(tables: Tables, *, by_position: bool) -> TextClause:
    """Find an event that is no longer in the log: from its dead letters, deliveries, or with an
    event_id from its results. Columns as in ``find``. Scans them."""
    name = "position" if by_position else "event_id"
    results = (
        ""
        if by_position
        else f"""UNION ALL SELECT event_id, CAST(-1 AS bigint), '', 3
            FROM {quoted(tables.results)} WHERE event_id = :event_id"""
    )
    return text(
        f"""
        SELECT event_id, position, event_type, false AS is_moving FROM (
            SELECT event_id, position, event_type, 1 AS place FROM {quoted(tables.dead_letters)}
            WHERE {name} = :{name}
            UNION ALL
            SELECT event_id, position, event_type, 2 FROM {quoted(tables.deliveries)}
            WHERE {name} = :{name} {results}
        ) AS copy ORDER BY copy.place LIMIT 1
        """
    ).bindparams(_POSITION if by_position else _EVENT)


def lock_listeners(tables: Tables) -> TextClause:
    """Lock every listener's rows: nobody claims or settles an event, and nobody claims a lease.
    Name, and whether it has not passed :position, is_held (a consumer works on it)."""
    return text(
        f"""
        SELECT l.name, {_UNTAKEN.format(holds("l.gaps", ":position"))} AS untaken,
               l.locked_by IS NOT NULL AND l.lease_expires_at > {NOW} AS is_held
        FROM {quoted(tables.listeners)} AS l ORDER BY l.name, l.partition FOR UPDATE
        """
    ).bindparams(_POSITION)


def lock_ranges(tables: Tables) -> TextClause:
    """Lock the ranges that contain :position: listener, and is_held."""
    return text(
        f"""
        SELECT r.listener, r.locked_by IS NOT NULL AND r.lease_expires_at > {NOW}
               AS is_held
        FROM {quoted(tables.ranges)} AS r WHERE {holds("r.gaps", ":position")}
        ORDER BY r.listener, r.number FOR UPDATE
        """
    ).bindparams(_POSITION)


def lock_deliveries(tables: Tables) -> TextClause:
    """Lock the deliveries of the event at :position, and those that one of them waits behind.
    Primary key, and the index on keys."""
    deliveries, listeners = quoted(tables.deliveries), quoted(tables.listeners)
    return text(
        f"""
        SELECT d.position FROM {deliveries} AS d WHERE (d.listener, d.position) IN (
            SELECT l.name, CAST(:position AS bigint) FROM {listeners} AS l WHERE l.partition = 0
            UNION
            SELECT head.listener, head.position FROM {listeners} AS l
            JOIN {deliveries} AS e
              ON e.listener = l.name AND e.position = :position AND e.state = 'behind'
            JOIN {deliveries} AS head
              ON head.listener = e.listener AND head.key = e.key AND head.state = 'parked'
            WHERE l.partition = 0)
        ORDER BY d.listener, d.position FOR UPDATE
        """
    ).bindparams(_POSITION)


def waiting(tables: Tables) -> TextClause:
    """The deliveries of the event at :position: listener, key, is_due (it may have started). The
    rows must be locked by an earlier statement: only then can nobody start one after the clock was
    read. Cancelled ones are included, and never due."""
    deliveries = quoted(tables.deliveries)
    return text(
        f"""
        SELECT d.listener, d.key, d.state <> 'cancelled' AND (
            coalesce(d.due_at <= {NOW}, false) OR EXISTS (
                SELECT FROM {deliveries} AS head
                WHERE d.state = 'behind' AND head.listener = d.listener AND head.key = d.key
                  AND head.state = 'parked' AND head.due_at <= {NOW})) AS is_due
        FROM {quoted(tables.listeners)} AS l JOIN {deliveries} AS d
          ON d.listener = l.name AND d.position = :position
        WHERE l.partition = 0 ORDER BY d.listener
        """
    ).bindparams(_POSITION)


def count(tables: Tables) -> TextClause:
    """How many dead_letters, results and keys the event :event_id has. Scans the first and the
    last."""
    return text(
        f"""
        SELECT (SELECT count(*) FROM {quoted(tables.dead_letters)} WHERE event_id = :event_id)
                   AS dead_letters,
               (SELECT count(*) FROM {quoted(tables.results)} WHERE event_id = :event_id)
                   AS results,
               (SELECT count(*) FROM {quoted(tables.idempotency_keys)} WHERE event_id = :event_id)
                   AS keys
        """
    ).bindparams(_EVENT)


def erase(tables: Tables, *, keys: bool) -> list[TextClause]:
    """Delete the event :event_id at :position, and everything copied from it; with *keys* its
    idempotency keys too. Counts as a writer for the horizon: it goes through the log, for a
    moment."""
    by_event = [tables.dead_letters, tables.results, *([tables.idempotency_keys] if keys else [])]
    log, listeners = log_name(tables), quoted(tables.listeners)
    at = "position = :position AND event_id = :event_id"
    return [
        text(f"DELETE FROM {log} WHERE id = :position AND event_id = :event_id").bindparams(
            _POSITION, _EVENT
        ),
        text(
            f"DELETE FROM {quoted(tables.deliveries)}"
            f" WHERE listener IN (SELECT name FROM {listeners}) AND {at}"
        ).bindparams(_POSITION, _EVENT),
        *(
            text(f"DELETE FROM {quoted(each)} WHERE event_id = :event_id").bindparams(_EVENT)
            for each in by_event
        ),
    ]


def forget_errors(tables: Tables) -> TextClause:
    """Clear the last error of each listener if it concerns this event: its text may quote it. Not
    part of what a lease protects. A scan of the dead letters."""
    return text(
        f"""
        UPDATE {quoted(tables.listeners)} AS l SET last_error = NULL
        WHERE l.last_error IS NOT NULL AND (EXISTS (
            SELECT FROM {quoted(tables.deliveries)} AS d
            WHERE d.listener = l.name AND d.position = :position AND d.last_error = l.last_error
        ) OR EXISTS (
            SELECT FROM {quoted(tables.dead_letters)} AS d
            CROSS JOIN LATERAL jsonb_path_query(d.errors, '$[*]') AS error
            WHERE d.event_id = :event_id AND d.listener = l.name
              AND error ->> 'message' = l.last_error))
        """
    ).bindparams(_POSITION, _EVENT)


def pass_by(tables: Tables) -> TextClause:
    """Touch the row of every listener that has not passed :position: what it has read and not
    claimed yet it reads again. Removes the event from the gaps, and the errors of its attempts.
    Nobody holds these listeners."""
    return text(
        f"""
        UPDATE {quoted(tables.listeners)} AS l SET
            revision = {NEW_REVISION}, updated_at = {NOW},
            gaps = coalesce((
                SELECT jsonb_agg(jsonb_build_array(part.lo, part.hi) ORDER BY part.lo)
                FROM jsonb_array_elements(l.gaps) AS gap
                CROSS JOIN LATERAL (VALUES
                    (CAST(gap ->> 0 AS bigint),
                     least(CAST(gap ->> 1 AS bigint), :position - 1)),
                    (greatest(CAST(gap ->> 0 AS bigint), :position + 1),
                     CAST(gap ->> 1 AS bigint))
                ) AS part (lo, hi) WHERE part.lo <= part.hi
            ), CAST('[]' AS jsonb)),
            errors = CASE WHEN retry_position = :position THEN '[]' ELSE errors END,
            last_error = CASE WHEN retry_position = :position THEN NULL ELSE last_error END,
            retry_count = CASE WHEN retry_position = :position THEN 0 ELSE retry_count END,
            retry_after = CASE WHEN retry_position = :position THEN NULL ELSE retry_after END,
            suspects = suspects - CAST(:position AS text),
            retry_position = nullif(retry_position, :position)
        WHERE {_UNTAKEN.format(holds("l.gaps", ":position"))}
        """
    ).bindparams(_POSITION)


def record(tables: Tables) -> TextClause:
    """Record that :who has erased the event, and nothing of its content. :detail is a JSON
    object."""
    return text(
        f"""
        INSERT INTO {quoted(tables.audit)}
            (action, event_id, event_type, actor_type, actor_id, detail)
        VALUES ('erased', :event_id, :event_type, 'operator', :who,
            jsonb_strip_nulls(CAST(:detail AS jsonb)))
        """
    ).bindparams(
        _EVENT,
        bindparam("event_type", type_=Text),
        bindparam("who", type_=Text),
        bindparam("detail", type_=Text),
    )
