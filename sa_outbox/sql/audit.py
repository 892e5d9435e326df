"""Statements that write the audit: what happened to an event, to whom and by whom."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import bindparam, insert, text
from sqlalchemy.types import Text

from .names import log_name, quoted

if TYPE_CHECKING:
    from sqlalchemy import Insert, TextClause

    from ..tables import Tables

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


def record(tables: Tables) -> TextClause:
    """Record what became of deliveries of :listener: :document is a JSON array.

    Of each: position, action, attempt, ago (seconds since it happened), detail (an object). Who
    and for whom is copied from the event. Served by the primary key of the log.
    """
    fields = ", ".join(f"o.headers ->> '{name}'" for name in _FROM_HEADERS)
    return text(
        f"""
        INSERT INTO {quoted(tables.audit)} (recorded_at, action, event_id, event_type, listener,
            tenant, {", ".join(_FROM_HEADERS)}, attempt, detail)
        SELECT clock_timestamp() - make_interval(secs => a.ago), a.action, o.event_id,
               o.event_type, :listener, o.tenant, {fields}, a.attempt, a.detail
        FROM ROWS FROM (jsonb_to_recordset(CAST(:document AS jsonb)) AS (
            position bigint, action text, attempt integer, ago float8, detail jsonb))
            WITH ORDINALITY AS a (position, action, attempt, ago, detail, ordinal)
        JOIN {log_name(tables)} AS o ON o.id = a.position
        ORDER BY a.ordinal
        """
    ).bindparams(bindparam("listener", type_=Text), bindparam("document", type_=Text))
