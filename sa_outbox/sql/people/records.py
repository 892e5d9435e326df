"""Statements that read the audit, for operators: what was done, and how long attempts took.

Each is bounded: it examines a number of records, the newest first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import bindparam
from sqlalchemy.types import BigInteger, Integer, Text, Uuid

from ..server.names import quoted
from ..server.timed_text import text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import TextClause

    from ...database.tables import Tables

LONGEST_DETAIL = 2000
"""Characters of a record's detail that a list shows."""
# A time that no driver can represent (infinity) is omitted, instead of failing the whole page.
_AT = (
    "CASE WHEN a.recorded_at BETWEEN '0001-01-02' AND '9999-01-01' THEN a.recorded_at END"
    " AS recorded_at"
)
_CONDITIONS = {
    "action": "a.action = :action",
    "actor": "a.actor_id = :actor",
    "listener": "a.listener = :listener",
}
_EXAMINED = bindparam("examined", type_=Integer)


def found(tables: Tables, given: Sequence[str]) -> TextClause:
    """Up to :limit records below the id :before that match the named conditions *given*, newest
    first, among the next :examined; with ``event_id`` among all of that event.

    Takes no locks. The primary key backwards, or the index on event_id.
    """
    audit = quoted(tables.audit)
    source = f"""SELECT * FROM {audit} AS a WHERE a.id < :before
                ORDER BY a.id DESC LIMIT :examined"""
    if "event_id" in given:
        source = f"""SELECT * FROM {audit} AS a
                WHERE a.event_id = :event_id AND a.id < :before"""
    conditions = "".join(f" AND {_CONDITIONS[each]}" for each in given if each in _CONDITIONS)
    statement = text(
        f"""
        SELECT a.id, {_AT}, a.action, a.event_id, a.event_type, a.listener, a.tenant,
            a.project_id, a.actor_type, a.actor_id, a.request_id, a.correlation_id, a.attempt,
            left(CAST(a.detail AS text), {LONGEST_DETAIL}) AS detail
        FROM ({source}) AS a WHERE true{conditions} ORDER BY a.id DESC LIMIT :limit
        """
    ).bindparams(bindparam("before", type_=BigInteger), bindparam("limit", type_=Integer))
    texts = [bindparam(each, type_=Text) for each in given if each in _CONDITIONS]
    by_event = "event_id" in given
    return statement.bindparams(
        *texts, bindparam("event_id", type_=Uuid) if by_event else _EXAMINED
    )


def last_examined(tables: Tables) -> TextClause:
    """The id of the last record that ``found`` examines, if there are as many. The primary key."""
    return text(
        f"""
        SELECT a.id FROM {quoted(tables.audit)} AS a WHERE a.id < :before
        ORDER BY a.id DESC OFFSET :examined - 1 LIMIT 1
        """
    ).bindparams(bindparam("before", type_=BigInteger), _EXAMINED)


def durations(tables: Tables) -> TextClause:
    """How long the attempts took whose start and end are both among the newest :examined records,
    by listener and event type, slowest first; up to :limit rows.

    listener, event_type, attempts, failed, and seconds: p50, p95, p99, longest. Such a pair of
    records is written with audit="all", in one statement when the attempt is settled. An attempt
    whose end nobody knows is left out. Takes no locks. The primary key backwards.
    """
    return text(
        f"""
        WITH few AS MATERIALIZED (
            SELECT id, action, event_id, event_type, listener, attempt, recorded_at,
                detail ? 'outcome' AS is_lost
            FROM {quoted(tables.audit)} ORDER BY id DESC LIMIT :examined
        ), took AS (
            SELECT e.listener, e.event_type, e.action,
                CAST(extract(epoch FROM e.recorded_at - s.recorded_at) AS float8) AS seconds
            FROM few AS e
            JOIN few AS s ON s.event_id = e.event_id AND s.listener = e.listener
             AND s.attempt = e.attempt AND s.action = 'started' AND NOT s.is_lost
            WHERE e.action IN ('succeeded', 'failed') AND isfinite(e.recorded_at)
              AND isfinite(s.recorded_at) AND e.recorded_at >= s.recorded_at
        )
        SELECT listener, event_type, count(*) AS attempts,
            count(*) FILTER (WHERE action = 'failed') AS failed,
            percentile_cont(0.5) WITHIN GROUP (ORDER BY seconds) AS p50,
            percentile_cont(0.95) WITHIN GROUP (ORDER BY seconds) AS p95,
            percentile_cont(0.99) WITHIN GROUP (ORDER BY seconds) AS p99,
            max(seconds) AS longest
        FROM took GROUP BY listener, event_type
        ORDER BY p95 DESC, listener, event_type LIMIT :limit
        """
    ).bindparams(_EXAMINED, bindparam("limit", type_=Integer))


def examined(tables: Tables) -> TextClause:
    """One row about the newest :examined records: records, since (the oldest of them). The primary
    key backwards."""
    return text(
        f"""
        SELECT count(*) AS records,
            min(recorded_at) FILTER (WHERE isfinite(recorded_at)) AS since
        FROM (
            SELECT recorded_at FROM {quoted(tables.audit)} ORDER BY id DESC LIMIT :examined
        ) AS few
        """
    ).bindparams(_EXAMINED)
