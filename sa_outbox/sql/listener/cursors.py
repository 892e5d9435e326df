"""Statements on the rows of listeners: registering them, moving their cursors.

Every write under a lease has its token and owner, the old position and the old revision in the
WHERE. No row back means that the lease is lost; then nothing else may be written. The revision
counts the writes: after a COMMIT whose answer was lost, it shows whether that write happened, even
if it moved no position.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import bindparam
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.types import BigInteger, Double, Integer, Text

from ..log.partitions import unchanged_until_commit
from ..server.names import log_name, quoted
from ..server.timed_text import text
from ..server.times import NOW
from ..server.transactions import BOUND
from .renewal import RENEWED

if TYPE_CHECKING:
    from sqlalchemy import TextClause

    from ...database.tables import Tables

MAX_ERRORS = 50
"""Maximum number of errors kept per delivery: the first, and the latest ones."""
MAX_TRACEBACKS = 10
"""Maximum number of tracebacks kept per delivery: of the first error, and of the latest ones."""

_TERM = (
    "name = :name AND partition = :part AND lease_token = :token AND last_processed_id = :old"
    " AND revision = :revision"
    " AND locked_by = :owner"
)
_TYPES = (
    bindparam("name", type_=Text),
    bindparam("part", type_=BigInteger),
    bindparam("token", type_=BigInteger),
    bindparam("old", type_=BigInteger),
    bindparam("revision", type_=BigInteger),
    bindparam("duration", type_=Double),
    bindparam("owner", type_=Text),
)

_WANTED = (
    bindparam("types", type_=ARRAY(Text)),
    bindparam("filter", type_=Text),
    bindparam("tenant", type_=Text),
    bindparam("order", type_=Text),
)

# In one write, an event that failed before may be done and the next one may fail.
_EARLIER = "CASE WHEN retry_position = :held THEN errors ELSE CAST('[]' AS jsonb) END"


def with_error(column: str, parameter: str) -> str:
    """SQL for *column* (a jsonb array of errors) with one more error and its time appended;
    bounded. What somebody else has written there, that is no array, is the first error."""
    latest = MAX_TRACEBACKS - 1
    return f"""(
        SELECT CASE WHEN jsonb_array_length(kept) >= {MAX_ERRORS} THEN kept - 1 ELSE kept END
            || jsonb_build_array({parameter} || jsonb_build_object('at', {NOW}))
        FROM (SELECT CASE WHEN jsonb_array_length(given) > {latest}
                          THEN given #- '{{-{latest},traceback}}' ELSE given END AS kept
              FROM (SELECT CASE jsonb_typeof({column}) WHEN 'array' THEN {column}
                                ELSE jsonb_build_array({column}) END AS given) AS found
             ) AS bounded)"""


def register(tables: Tables) -> TextClause:
    """Give each of the :count partitions of :name a cursor at :position, unless it has them.

    Returns rows if they were created. All or none: whoever creates the first creates the others, so
    two programs that declare different counts can't each create a part. Until this is committed no
    event is deleted: it finds all that is retained, or what it does not find was gone before.
    """
    listeners = quoted(tables.listeners)
    columns = (
        "(name, partition, partition_count, last_processed_id, gaps, fingerprint, event_types,"
        " payload_filter, tenant, ordering)"
    )
    values = (
        ":count, :position, CAST(:gaps AS jsonb), :fingerprint, :types, CAST(:filter AS jsonb),"
        " :tenant, :order"
    )
    return text(
        f"""
        WITH retained AS MATERIALIZED (
            SELECT {unchanged_until_commit(tables)}
        ), first AS (
            INSERT INTO {listeners} {columns} SELECT :name, 0, {values} FROM retained
            ON CONFLICT (name, partition) DO NOTHING RETURNING name
        ), rest AS (
            INSERT INTO {listeners} {columns}
            SELECT first.name, added.number, {values}
            FROM first CROSS JOIN generate_series(1, :count - 1) AS added (number)
        )
        SELECT name FROM first
        """
    ).bindparams(
        bindparam("name", type_=Text),
        bindparam("count", type_=Integer),
        bindparam("position", type_=BigInteger),
        bindparam("gaps", type_=Text),
        bindparam("fingerprint", type_=Text),
        *_WANTED,
    )


def describe(tables: Tables) -> TextClause:
    """Record which events the listener :name gets, for those who count its backlog or ask for the
    status of an event: :types, :filter (JSON), :tenant; and its :order. Locks its rows for a
    moment."""
    return text(
        f"""
        UPDATE {quoted(tables.listeners)}
        SET event_types = :types, payload_filter = CAST(:filter AS jsonb), tenant = :tenant,
            ordering = :order
        WHERE name = :name
        """
    ).bindparams(bindparam("name", type_=Text), *_WANTED)


def registered(tables: Tables) -> TextClause:
    """Every listener the database knows: name, position (of the partition that is furthest behind),
    number of partitions, and what ``describe`` recorded (of one partition)."""
    return text(
        f"""
        SELECT name, min(last_processed_id) AS position, max(partition_count) AS count,
               min(event_types) AS types, min(CAST(payload_filter AS text)) AS filter,
               min(tenant) AS tenant, min(ordering) AS order
        FROM {quoted(tables.listeners)} GROUP BY name ORDER BY name
        """
    )


def advance(tables: Tables) -> TextClause:
    """Move the cursor from :old to :position with these :gaps, renew the lease, forget retries.

    One row if the term :token is still valid. Locks the row until the transaction ends, which is at
    once.
    """
    return text(
        f"""
        UPDATE {quoted(tables.listeners)}
        SET last_processed_id = :position, gaps = CAST(:gaps AS jsonb), revision = revision + 1,
            {RENEWED},
            retry_count = 0, retry_position = NULL, retry_after = NULL, errors = '[]'
        WHERE {_TERM} RETURNING last_processed_id, {BOUND}
        """
    ).bindparams(*_TYPES, bindparam("position", type_=BigInteger), bindparam("gaps", type_=Text))


def save(tables: Tables) -> TextClause:
    """Move the cursor from :old to :position with these :gaps and renew the lease, but keep the
    retries: an event waits for its next attempt meanwhile."""
    return text(
        f"""
        UPDATE {quoted(tables.listeners)}
        SET last_processed_id = :position, gaps = CAST(:gaps AS jsonb), revision = revision + 1,
            {RENEWED}
        WHERE {_TERM} RETURNING last_processed_id, {BOUND}
        """
    ).bindparams(*_TYPES, bindparam("position", type_=BigInteger), bindparam("gaps", type_=Text))


def hold(tables: Tables) -> TextClause:
    """Move the cursor, renew the lease, and record that the event at :held failed: :retry_count,
    the next attempt in :delay seconds.

    For ``order="total"``, where the cursor stays before the event until it is settled.
    """
    return text(
        f"""
        UPDATE {quoted(tables.listeners)}
        SET last_processed_id = :position, gaps = CAST(:gaps AS jsonb), revision = revision + 1,
            {RENEWED},
            retry_count = :retry_count, retry_position = :held,
            retry_after = {NOW} + make_interval(secs => :delay),
            errors = {with_error(_EARLIER, "CAST(:failure AS jsonb)")},
            last_error_code = :code, last_error = :message, last_error_at = {NOW}
        WHERE {_TERM} RETURNING last_processed_id
        """
    ).bindparams(
        *_TYPES,
        bindparam("position", type_=BigInteger),
        bindparam("gaps", type_=Text),
        bindparam("retry_count", type_=Integer),
        bindparam("held", type_=BigInteger),
        bindparam("delay", type_=Double),
        bindparam("failure", type_=Text),
        bindparam("code", type_=Text),
        bindparam("message", type_=Text),
    )


def stand(tables: Tables) -> TextClause:
    """Position, gaps (text), revision, retry_count, retry_position, retry_in (seconds) and suspects
    (text) under the term :token; no row if it is lost.

    Waits for a transaction that is about to write the row: after a COMMIT whose answer was lost
    this shows whether it happened. Locks the row for the moment.
    """
    return text(
        f"""
        SELECT last_processed_id AS position, CAST(gaps AS text) AS gaps, revision, retry_count,
            retry_position,
            CAST(extract(epoch FROM retry_after - {NOW}) AS float8) AS retry_in,
            CAST(suspects AS text) AS suspects
        FROM {quoted(tables.listeners)}
        WHERE name = :name AND partition = :part AND lease_token = :token AND locked_by = :owner
        FOR UPDATE
        """
    ).bindparams(bindparam("owner", type_=Text))


def remember_error(tables: Tables) -> TextClause:
    """Record the listener's last error, for display. Under the term :token."""
    return text(
        f"""
        UPDATE {quoted(tables.listeners)}
        SET last_error_code = :code, last_error = :message, last_error_at = {NOW}
        WHERE name = :name AND partition = :part AND lease_token = :token
        """
    )


def declare(tables: Tables) -> TextClause:
    """Record how the listener :name is declared now."""
    return text(
        f"UPDATE {quoted(tables.listeners)} SET fingerprint = :fingerprint"
        " WHERE name = :name AND partition = :part AND lease_token = :token"
    )


def behind(tables: Tables) -> TextClause:
    """Those of the listeners :names that have not settled everything visible up to :ceiling, except
    the partitions (:held, :parts), of which the caller knows more than their rows say.

    A listener is behind if its cursor is lower, if it has an event in a gap, or, with :retries, a
    waiting delivery. Not one that is paused: nobody works on it. Reads few rows: for ``drain``.
    """
    return text(
        f"""
        SELECT l.name FROM {quoted(tables.listeners)} AS l
        WHERE l.name = ANY (:names) AND l.paused_at IS NULL
          AND NOT EXISTS (
              SELECT FROM unnest(:held, :parts) AS ours (name, part)
              WHERE ours.name = l.name AND ours.part = l.partition)
          AND (
            l.last_processed_id < :ceiling
            OR EXISTS (
                SELECT FROM jsonb_array_elements(l.gaps) AS gap
                JOIN {log_name(tables)} AS o ON o.id <= :ceiling
                 AND o.id BETWEEN CAST(gap ->> 0 AS bigint) AND CAST(gap ->> 1 AS bigint)
            )
            OR (:retries AND EXISTS (
                SELECT FROM {quoted(tables.deliveries)} AS d
                WHERE d.listener = l.name AND d.partition = l.partition
                  AND d.position <= :ceiling
                  AND d.state IN ('parked', 'behind')
            ))
        )
        """
    ).bindparams(
        bindparam("names", type_=ARRAY(Text)),
        bindparam("held", type_=ARRAY(Text)),
        bindparam("parts", type_=ARRAY(Integer)),
        bindparam("ceiling", type_=BigInteger),
    )
