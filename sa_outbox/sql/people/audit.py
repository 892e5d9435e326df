"""Statements that write the audit: what happened to an event, to whom and by whom."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import bindparam, insert
from sqlalchemy.types import Text

from ..server.names import log_name, quoted
from ..server.timed_text import text
from ..server.times import NOW

if TYPE_CHECKING:
    from sqlalchemy import Insert, TextClause

    from ...database.tables import Tables

_FROM_HEADERS = ("actor_type", "actor_id", "request_id", "correlation_id")


def record_added(tables: Tables) -> Insert:
    """Record that the events of ``document`` were added: the parameter of ``insert_events``."""
    fields = ", ".join(f"headers ->> '{name}'" for name in _FROM_HEADERS)
    source = (
        text(
            f"SELECT 'enqueued', event_id, event_type, tenant, {fields}"
            " FROM ROWS FROM (json_to_recordset(CAST(:document AS json)) AS ("
            "event_id uuid, event_type text, tenant text, headers jsonb))"
            " WITH ORDINALITY AS added(event_id, event_type, tenant, headers, ordinal)"
            " ORDER BY ordinal"
        )
        .bindparams(bindparam("document", type_=Text))
        .columns()
    )
    columns = ("action", "event_id", "event_type", "tenant", *_FROM_HEADERS)
    return insert(tables.audit).from_select(columns, source, include_defaults=False).inline()


def _event_of(tables: Tables) -> str:
    """SQL for the event of a delivery, as in ``reads.event_of`` but without the payload: whoever
    cancels an event may not be allowed to read it."""
    common = "event_id, event_type, tenant, headers"
    return f"""(
        SELECT id, {common} FROM {log_name(tables)}
        WHERE id = a.position AND d.dead_letter IS NULL
        UNION ALL
        SELECT position, {common} FROM {quoted(tables.dead_letters)} WHERE id = d.dead_letter)"""


def record(tables: Tables) -> TextClause:
    """Record the outcome of deliveries of :listener: :document is a JSON array.

    Each has: position, action, attempt, ago (seconds since it happened), detail (an object). Who
    and for whom is copied from the event, and why it was cancelled from the delivery's row. One
    that should be retried but whose row says cancelled is recorded as cancelled: that was requested
    while it failed. Run it after the statements that write such rows, and before the one that
    deletes them: for a replay they lead to the event. Primary keys of the log and the deliveries.
    """
    fields = ", ".join(f"o.headers ->> '{name}'" for name in _FROM_HEADERS)
    return text(
        f"""
        INSERT INTO {quoted(tables.audit)} (recorded_at, action, event_id, event_type, listener,
            tenant, {", ".join(_FROM_HEADERS)}, attempt, detail)
        SELECT {NOW} - make_interval(secs => a.ago),
               CASE WHEN a.action = 'retried' AND d.state = 'cancelled' THEN 'cancelled'
                    ELSE a.action END,
               o.event_id, o.event_type, :listener, o.tenant, {fields}, a.attempt,
               CASE WHEN d.state = 'cancelled' AND a.action IN ('retried', 'cancelled')
                    THEN jsonb_strip_nulls(jsonb_build_object('reason', d.cancel_reason))
                         || CASE WHEN a.action = 'cancelled' THEN a.detail ELSE '{{}}' END
                    ELSE a.detail END
        FROM ROWS FROM (jsonb_to_recordset(CAST(:document AS jsonb)) AS (
            position bigint, action text, attempt integer, ago float8, detail jsonb))
            WITH ORDINALITY AS a (position, action, attempt, ago, detail, ordinal)
        LEFT JOIN {quoted(tables.deliveries)} AS d
               ON d.listener = :listener AND d.position = a.position
        CROSS JOIN LATERAL {_event_of(tables)} AS o
        ORDER BY a.ordinal
        """
    ).bindparams(bindparam("listener", type_=Text), bindparam("document", type_=Text))
