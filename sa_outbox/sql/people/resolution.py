"""Statements that resolve dead letters: replay, discard, edit. Each writes its own audit line.

Invariant: a dead letter is resolved once. Every statement checks ``resolution IS NULL`` under the
row's lock, so what two operators do at once, or one does twice, happens once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import bindparam
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.types import BigInteger, Integer, Text

from ..log.listener_partitions import partition_of
from ..server.names import quoted
from ..server.timed_text import text
from ..server.times import NOW
from .searches import chosen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import TextClause

    from ...database.tables import Tables

_IDS = bindparam("ids", type_=ARRAY(BigInteger))
_OPERATOR = (bindparam("who", type_=Text), bindparam("why", type_=Text))
_RESOLVED = f"resolved_at = {NOW}, resolved_by = :who, resolved_why = :why"


def _audited(tables: Tables, action: str, source: str, detail: str = "") -> str:
    """SQL: one line for each row of *source*, which is a dead letter. The actor is the operator; a
    request in the event's headers was not theirs."""
    return f"""
        INSERT INTO {quoted(tables.audit)} (action, event_id, event_type, listener, tenant,
            project_id, actor_type, actor_id, correlation_id, attempt, detail)
        SELECT {action}, event_id, event_type, listener, tenant, headers ->> 'project_id',
            'operator', :who, headers ->> 'correlation_id', attempts,
            jsonb_strip_nulls(jsonb_build_object('dead_letter', id, 'why', :why{detail}))
        FROM {source} ORDER BY id"""


def lock_replays(tables: Tables) -> TextClause:
    """Serialise replays: with two at once, a later event of a key could arrive before an earlier
    one. Ends with the transaction; consumers do not take this lock."""
    return text(
        "SELECT pg_advisory_xact_lock(CAST(CAST("
        f"CAST('{quoted(tables.dead_letters)}' AS regclass) AS oid) AS bigint))"
    )


def in_order(tables: Tables, given: Sequence[str]) -> TextClause:
    """Up to :limit dead letters that match the named conditions *given*, ordered by listener and
    log position: id, listener, position. Beyond (:after_listener, :after_position, :after_id), and
    no younger than :newest.

    Takes no locks. Reads those of the listener; with the index on unresolved ones.
    """
    return chosen(
        f"""
        SELECT d.id, d.listener, d.position FROM {quoted(tables.dead_letters)} AS d
        WHERE d.id <= :newest
          AND (d.listener, d.position, d.id) > (:after_listener, :after_position, :after_id)
          {{conditions}}
        ORDER BY d.listener, d.position, d.id LIMIT :limit
        """,
        given,
    ).bindparams(
        bindparam("newest", type_=BigInteger),
        bindparam("after_listener", type_=Text),
        bindparam("after_position", type_=BigInteger),
        bindparam("after_id", type_=BigInteger),
        bindparam("limit", type_=Integer),
    )


def newest(tables: Tables) -> TextClause:
    """The highest id of a dead letter, 0 without any: later ones are not included."""
    return text(f"SELECT coalesce(max(id), 0) AS newest FROM {quoted(tables.dead_letters)}")


def replay(tables: Tables) -> TextClause:
    """Make the dead letters :ids deliveries that are due now, each for its own listener only. A row
    with the id of each for which that was done.

    Not for a resolved one, for a listener that the database does not know, or whose event already
    waits for that listener. Whatever the listener's order: its holder takes those of one key one
    after the other, by position. Locks the dead letters; and the listeners' rows against a change
    of their partitions, not against their consumers.
    """
    part = partition_of("d.key", "d.position", "l.partition_count")
    return text(
        f"""
        WITH wanted AS MATERIALIZED (
            SELECT d.*, {part} AS part
            FROM {quoted(tables.dead_letters)} AS d
            JOIN {quoted(tables.listeners)} AS l ON l.name = d.listener AND l.partition = 0
            WHERE d.id = ANY (:ids) AND d.resolution IS NULL
            ORDER BY d.id FOR UPDATE OF d FOR KEY SHARE OF l
        ), waiting AS (
            INSERT INTO {quoted(tables.deliveries)} (listener, position, partition, event_id,
                event_type, key, tenant, priority, state, due_at, dead_letter)
            SELECT listener, position, part, event_id, event_type, key, tenant, priority,
                'parked', {NOW}, id
            FROM wanted ORDER BY listener, position, id
            ON CONFLICT (listener, position) DO NOTHING
            RETURNING dead_letter
        ), resolved AS (
            UPDATE {quoted(tables.dead_letters)} AS d
            SET resolution = 'replayed', {_RESOLVED}
            FROM waiting WHERE d.id = waiting.dead_letter RETURNING d.*
        ), recorded AS ({_audited(tables, "'replayed'", "resolved")})
        SELECT id FROM resolved ORDER BY id
        """
    ).bindparams(_IDS, *_OPERATOR)


def discard(tables: Tables) -> TextClause:
    """Resolve the dead letters :ids with :resolution (discarded, or fixed by other means). A row
    with the id of each that was unresolved. Locks them in order of ids."""
    dead = quoted(tables.dead_letters)
    return text(
        f"""
        WITH wanted AS MATERIALIZED (
            SELECT id FROM {dead} WHERE id = ANY (:ids) AND resolution IS NULL
            ORDER BY id FOR UPDATE
        ), resolved AS (
            UPDATE {dead} AS d SET resolution = :resolution, {_RESOLVED}
            FROM wanted WHERE d.id = wanted.id RETURNING d.*
        ), recorded AS ({_audited(tables, "CAST(:resolution AS text)", "resolved")})
        SELECT id FROM resolved ORDER BY id
        """
    ).bindparams(_IDS, *_OPERATOR, bindparam("resolution", type_=Text))


def edit(tables: Tables) -> TextClause:
    """Replace the :payload and :headers (JSON text) in the copy of the dead letter :id, if it was
    edited :edits times and is unresolved. A row if so.

    Payload and headers from before the first edit are kept in ``original``.
    """
    detail = ", 'edits', edits"
    return text(
        f"""
        WITH edited AS (
            UPDATE {quoted(tables.dead_letters)}
            SET payload = CAST(:payload AS jsonb), headers = CAST(:headers AS jsonb),
                edits = edits + 1,
                original = coalesce(original,
                    jsonb_build_object('payload', payload, 'headers', headers))
            WHERE id = :id AND edits = :edits AND resolution IS NULL RETURNING *
        ), recorded AS ({_audited(tables, "'edited'", "edited", detail)})
        SELECT id, edits FROM edited
        """
    ).bindparams(
        *_OPERATOR,
        bindparam("id", type_=BigInteger),
        bindparam("edits", type_=Integer),
        bindparam("payload", type_=Text),
        bindparam("headers", type_=Text),
    )
