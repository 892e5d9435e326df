"""The statement that returns the status of an event."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import bindparam
from sqlalchemy.types import Text, Uuid

from ..log.listener_partitions import partition_of
from ..log.matching import NONE_MET, filters, met
from ..queue.cancellation import holds
from ..server.names import log_name, quoted
from ..server.timed_text import text
from ..server.times import NOW

if TYPE_CHECKING:
    from sqlalchemy import TextClause

    from ...database.tables import Tables


def status(tables: Tables, *, filtered: bool = False, audited: bool = False) -> TextClause:
    """Everything known about the event :event_id; or, if that is NULL, about the one that has the
    idempotency key (:tenant, :event_type, :key).

    A row for each listener that the database knows or has a trace of, one without a listener if
    there is none. No row if nothing is known about the event. ``position`` is NULL when it is no
    longer in the log. ``met``: if *filtered*, those of :filters that its payload meets.
    ``only_tenant`` and ``only_where``: what the listener is registered for. One statement, so one
    snapshot: while a delivery moves from one table to another, two would see it in both, or in
    none. *audited*: successes are in the audit.

    Takes no locks. Served by the index on event ids and primary keys; the dead letters are scanned,
    since they have no index on events.
    """
    known = met("payload") if filtered else NONE_MET
    succeeded_at = "CAST(NULL AS timestamptz)"
    if audited:
        succeeded_at = f"""(
            SELECT max(recorded_at) FROM {quoted(tables.audit)} AS a
            WHERE a.event_id = wanted.event_id AND a.listener = c.name
              AND a.action = 'succeeded')"""
    statement = text(
        f"""
        WITH wanted AS MATERIALIZED (
            SELECT coalesce(:event_id, (
                SELECT event_id FROM {quoted(tables.idempotency_keys)}
                WHERE tenant = :tenant AND event_type = :event_type AND key = :key
                  AND expires_at > {NOW})) AS event_id
        ), event AS MATERIALIZED (
            SELECT id, event_type, key, tenant, created_at, {known} AS met FROM {log_name(tables)}
            WHERE event_id = (SELECT event_id FROM wanted)
        ), dead AS MATERIALIZED (
            SELECT DISTINCT ON (listener) listener, position, event_type, event_created_at,
                   attempts, failed_at,
                   errors -> -1 ->> 'code' AS code, errors -> -1 ->> 'message' AS message
            FROM {quoted(tables.dead_letters)}
            WHERE event_id = (SELECT event_id FROM wanted)
              AND (resolution IS NULL OR resolution = 'discarded')
            ORDER BY listener, id DESC
        ), results AS MATERIALIZED (
            SELECT listener, result_ref, recorded_at FROM {quoted(tables.results)}
            WHERE event_id = (SELECT event_id FROM wanted) AND expires_at > {NOW}
        ), concerned AS (
            SELECT name FROM {quoted(tables.listeners)}
            UNION SELECT listener FROM dead UNION SELECT listener FROM results
        )
        SELECT wanted.event_id, event.id AS position, c.name,
            coalesce(event.event_type, dead.event_type) AS event_type,
            coalesce(event.created_at, dead.event_created_at) AS created_at, event.met,
            coalesce(event.id > l.last_processed_id OR {holds("l.gaps", "event.id")}, false)
                AS untaken,
            event.tenant, l.event_types, l.tenant AS only_tenant,
            CAST(l.payload_filter AS text) AS only_where,
            has_column_privilege('{log_name(tables)}', 'payload', 'SELECT') AS reads_payloads,
            event.id = l.retry_position AS held, l.retry_count, l.retry_after,
            l.last_error_code AS held_code, l.last_error AS held_error,
            d.state, d.attempts, d.due_at, d.last_error_code, d.last_error, d.cancel_reason,
            d.updated_at AS changed_at, d.range IS NOT NULL AS requested_or_taken,
            d.cancel_requested_at IS NOT NULL AS cancel_requested,
            r.is_held,
            dead.listener IS NOT NULL AS dead, dead.attempts AS dead_attempts,
            dead.failed_at AS dead_at, dead.code AS dead_code, dead.message AS dead_error,
            results.result_ref, results.recorded_at AS result_at,
            {succeeded_at} AS succeeded_at
        FROM wanted
        LEFT JOIN event ON true
        LEFT JOIN concerned AS c ON true
        LEFT JOIN {quoted(tables.listeners)} AS l ON l.name = c.name
              AND l.partition = {partition_of("event.key", "event.id", "l.partition_count")}
        LEFT JOIN {quoted(tables.deliveries)} AS d
               ON d.listener = c.name AND d.position = event.id
        LEFT JOIN LATERAL (
            SELECT locked_by IS NOT NULL AND lease_expires_at > {NOW} AS is_held
            FROM {quoted(tables.ranges)} AS one
            WHERE one.listener = c.name AND {holds("one.gaps", "event.id")} LIMIT 1
        ) AS r ON true
        LEFT JOIN dead ON dead.listener = c.name
        LEFT JOIN results ON results.listener = c.name
        WHERE wanted.event_id IS NOT NULL
          AND (event.id IS NOT NULL OR :by_key OR EXISTS (SELECT FROM dead)
               OR EXISTS (SELECT FROM results))
        ORDER BY c.name
        """
    ).bindparams(
        bindparam("event_id", type_=Uuid),
        bindparam("tenant", type_=Text),
        bindparam("event_type", type_=Text),
        bindparam("key", type_=Text),
    )
    return statement.bindparams(filters()) if filtered else statement
