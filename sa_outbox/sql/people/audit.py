"""Statements that write the audit: what happened to an event, to whom and by whom."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import bindparam, insert
from sqlalchemy.types import BigInteger, Text

from ..server.names import log_name, quoted
from ..server.timed_text import text
from ..server.times import NOW

if TYPE_CHECKING:
    from sqlalchemy import Insert, TextClause

    from ...database.tables import Tables

_ACTOR = ("actor_type", "actor_id", "request_id")
_FROM_HEADERS = ("project_id", *_ACTOR, "correlation_id")


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

    Each has: position, action, attempt, ago (seconds since it happened), detail (an object), and
    optionally actor (an object). Tenant, project and actor are copied from the event; but the actor
    of a cancellation is whoever cancelled: the one given, or that of the delivery's row, which has
    the reason too. One that should be retried but whose row says cancelled is recorded as
    cancelled: that was requested while it failed. Run it after the statements that write such rows,
    and before the one that deletes them: for a replay they lead to the event. Primary keys of the
    log and the deliveries.
    """
    is_cancelled = "(a.action = 'cancelled' OR a.action = 'retried' AND d.state = 'cancelled')"
    fields = ", ".join(
        f"CASE WHEN {is_cancelled} THEN coalesce(a.actor, d.cancel_actor) ->> '{name}'"
        f" ELSE o.headers ->> '{name}' END"
        if name in _ACTOR
        else f"o.headers ->> '{name}'"
        for name in _FROM_HEADERS
    )
    return text(
        f"""
        INSERT INTO {quoted(tables.audit)} (recorded_at, action, event_id, event_type, listener,
            tenant, {", ".join(_FROM_HEADERS)}, attempt, detail)
        SELECT {NOW} - make_interval(secs => a.ago),
               CASE WHEN {is_cancelled} THEN 'cancelled' ELSE a.action END,
               o.event_id, o.event_type, :listener, o.tenant, {fields}, a.attempt,
               CASE WHEN d.state = 'cancelled' AND a.action IN ('retried', 'cancelled')
                    THEN jsonb_strip_nulls(jsonb_build_object('reason', d.cancel_reason))
                         || CASE WHEN a.action = 'cancelled' THEN a.detail ELSE '{{}}' END
                    ELSE a.detail END
        FROM ROWS FROM (jsonb_to_recordset(CAST(:document AS jsonb)) AS (
            position bigint, action text, attempt integer, ago float8, detail jsonb, actor jsonb))
            WITH ORDINALITY AS a (position, action, attempt, ago, detail, actor, ordinal)
        LEFT JOIN {quoted(tables.deliveries)} AS d
               ON d.listener = :listener AND d.position = a.position
        CROSS JOIN LATERAL {_event_of(tables)} AS o
        ORDER BY a.ordinal
        """
    ).bindparams(bindparam("listener", type_=Text), bindparam("document", type_=Text))


def record_lost(tables: Tables, *, ranges: bool = False) -> TextClause:
    """Record as started the attempts that the leased row (:name, :part) knows of and that came to
    no end: its suspects (``sql/listener/suspects.py``), who were being attempted when a holder
    vanished. Each attempt once, whoever finds it. Only under the term :token, before its own
    attempts. Few rows: index on the audit's event_id.
    """
    table, which = (
        (quoted(tables.ranges), "l.listener = :name AND l.number = :part")
        if ranges
        else (quoted(tables.listeners), "l.name = :name AND l.partition = :part")
    )
    held = "NULL" if ranges else "CASE WHEN l.retry_position = a.position THEN l.retry_count END"
    fields = ", ".join(f"o.headers ->> '{name}'" for name in _FROM_HEADERS)
    audit = quoted(tables.audit)
    return text(
        f"""
        INSERT INTO {audit} (action, event_id, event_type, listener, tenant,
            {", ".join(_FROM_HEADERS)}, attempt, detail)
        SELECT 'started', o.event_id, o.event_type, :name, o.tenant, {fields}, n.attempt,
            jsonb_strip_nulls(jsonb_build_object('outcome', 'unknown', 'term', m.term))
        FROM {table} AS l
        CROSS JOIN LATERAL jsonb_each(l.suspects) AS s (id, terms)
        CROSS JOIN LATERAL (SELECT CAST(s.id AS bigint) AS position) AS a
        CROSS JOIN LATERAL (
            SELECT term FROM jsonb_array_elements_text(s.terms) AS alone (term)
            UNION ALL SELECT NULL WHERE s.terms = '[]') AS m
        LEFT JOIN {quoted(tables.deliveries)} AS d
               ON d.listener = :name AND d.position = a.position
        CROSS JOIN LATERAL {_event_of(tables)} AS o
        CROSS JOIN LATERAL (SELECT coalesce(d.attempts, {held}, 0) + 1 AS attempt) AS n
        WHERE {which} AND l.lease_token = :token AND NOT EXISTS (
            SELECT FROM {audit} AS e
            WHERE e.event_id = o.event_id AND e.listener = :name AND e.action = 'started'
              AND e.detail ->> 'outcome' = 'unknown' AND e.attempt = n.attempt
              AND (m.term IS NULL OR e.detail ->> 'term' = m.term))
        ORDER BY a.position, m.term
        """
    ).bindparams(
        bindparam("name", type_=Text),
        bindparam("part", type_=BigInteger),
        bindparam("token", type_=BigInteger),
    )
