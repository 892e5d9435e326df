"""Statements with which an operator moves a listener: pause, rewind, skip, retire.

Invariant: for a listener, an event is in exactly one place: unclaimed (above its cursor, or in its
gaps), in a range, in a delivery's row, a dead letter, or settled. What is moved here is moved in
one transaction that locks the listener's rows; each gets a higher token, another revision and no
owner, so whoever worked on it can write nothing more, and restarts at the new position.

Unclaimed ids are a multirange here: the gaps, and everything above the cursor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import bindparam
from sqlalchemy.types import BigInteger, Boolean, Text

from ..listener.suspects import NOTHING
from ..log.listener_partitions import partition_of
from ..queue.ranges import NEW_REVISION
from ..server.names import log_name, quoted
from ..server.timed_text import text
from ..server.times import NOW

if TYPE_CHECKING:
    from sqlalchemy import TextClause

    from ...database.tables import Tables

_NAME = bindparam("name", type_=Text)
_FROM = bindparam("from_id", type_=BigInteger)
_GAPS = (
    "(SELECT range_agg(int8range(CAST(gap ->> 0 AS bigint), CAST(gap ->> 1 AS bigint), '[]'))"
    " FROM jsonb_array_elements({}) AS gap)"
)
_NONE = "CAST('{}' AS int8multirange)"


def lock(tables: Tables) -> TextClause:
    """The partitions of the listener :name, in order: partition, position, held (under an unexpired
    lease), paused, retry_position, suspect_position; and in_use: consumers that work on it. Locks
    the rows: until the transaction ends, nobody settles or claims anything."""
    return text(
        f"""
        SELECT l.partition, l.last_processed_id AS position, l.paused_at IS NOT NULL AS paused,
            l.locked_by IS NOT NULL AND l.lease_expires_at > {NOW} AS held,
            l.retry_position,
            (SELECT min(CAST(position AS bigint)) FROM jsonb_each(l.suspects) AS s (position, terms)
             WHERE terms <> '[]') AS suspect_position,
            (SELECT count(*) FROM {quoted(tables.consumers)} AS c
             WHERE l.name = ANY (c.listeners) AND c.expires_at > {NOW}) AS in_use
        FROM {quoted(tables.listeners)} AS l WHERE l.name = :name
        ORDER BY l.partition FOR UPDATE OF l
        """
    ).bindparams(_NAME)


def pause(tables: Tables) -> TextClause:
    """Pause the listener :name, or with :paused false resume it. A row if that changed it."""
    return text(
        f"""
        UPDATE {quoted(tables.listeners)}
        SET paused_at = CASE WHEN :paused THEN {NOW} END,
            updated_at = {NOW}
        WHERE name = :name AND (paused_at IS NULL) = :paused RETURNING partition
        """
    ).bindparams(_NAME, bindparam("paused", type_=Boolean))


def place(tables: Tables) -> TextClause:
    """Set what is unclaimed in every partition of :name: what is unclaimed now plus :added, minus
    :removed, plus :kept in any case: multiranges. A row each: partition, before and position.

    Nobody holds it then, and the previous holder has lost it.
    """
    return text(
        f"""
        UPDATE {quoted(tables.listeners)} AS l
        SET last_processed_id = moved.position, gaps = moved.gaps, revision = {NEW_REVISION},
            lease_token = l.lease_token + 1, locked_by = NULL, lease_expires_at = NULL,
            retry_count = 0, retry_position = NULL, retry_after = NULL, errors = '[]',
            {NOTHING},
            updated_at = {NOW}
        FROM (
            SELECT o.partition, o.last_processed_id AS before,
                max(lower(part)) FILTER (WHERE upper_inf(part)) - 1 AS position,
                coalesce(jsonb_agg(jsonb_build_array(lower(part), upper(part) - 1)
                                   ORDER BY lower(part)) FILTER (WHERE NOT upper_inf(part)),
                         CAST('[]' AS jsonb)) AS gaps
            FROM {quoted(tables.listeners)} AS o
            CROSS JOIN LATERAL unnest(
                (coalesce({_GAPS.format("o.gaps")}, {_NONE})
                 + CAST(int8range(o.last_processed_id + 1, NULL) AS int8multirange)
                 + CAST(:added AS int8multirange)
                 - CAST(:removed AS int8multirange)) + CAST(:kept AS int8multirange)
            ) AS part
            WHERE o.name = :name
            GROUP BY o.partition, o.last_processed_id
        ) AS moved
        WHERE l.name = :name AND l.partition = moved.partition
        RETURNING l.partition, moved.before, moved.position
        """
    ).bindparams(
        _NAME,
        bindparam("added", type_=Text),
        bindparam("removed", type_=Text),
        bindparam("kept", type_=Text),
    )


def dissolve_ranges(tables: Tables) -> TextClause:
    """Delete the ranges of the queue :name: whoever holds one has lost it. One row: the ids that
    were in them and have no row of their own, as a multirange. Locks them in order."""
    return text(
        f"""
        WITH held AS MATERIALIZED (
            SELECT number FROM {quoted(tables.ranges)} WHERE listener = :name
            ORDER BY number FOR UPDATE
        ), gone AS (
            DELETE FROM {quoted(tables.ranges)} AS r USING held
            WHERE r.listener = :name AND r.number = held.number RETURNING r.gaps
        )
        SELECT CAST(coalesce(range_agg(ids.parts), {_NONE}) - coalesce((
            SELECT range_agg(int8range(d.position, d.position, '[]'))
            FROM {quoted(tables.deliveries)} AS d
            WHERE d.listener = :name AND d.range IS NOT NULL), {_NONE}) AS text) AS ids
        FROM gone CROSS JOIN LATERAL (
            SELECT int8range(CAST(gap ->> 0 AS bigint), CAST(gap ->> 1 AS bigint), '[]') AS parts
            FROM jsonb_array_elements(gone.gaps) AS gap
        ) AS ids
        """
    ).bindparams(_NAME)


def give_back_deliveries(tables: Tables) -> TextClause:
    """Detach the deliveries of :name from their ranges; one with a cancellation request is
    cancelled."""
    return text(
        f"""
        UPDATE {quoted(tables.deliveries)}
        SET range = NULL, updated_at = {NOW},
            state = CASE WHEN cancel_requested_at IS NULL THEN state ELSE 'cancelled' END
        WHERE listener = :name AND range IS NOT NULL
        """
    ).bindparams(_NAME)


def forget_deliveries(tables: Tables) -> TextClause:
    """Delete the deliveries of :name from :from_id on whose events the cursor will read again.

    Not cancelled ones, not replays (they come from their copy, perhaps edited), and not one whose
    event is gone from the log. A row for each deleted one.
    """
    return text(
        f"""
        DELETE FROM {quoted(tables.deliveries)} AS d
        WHERE d.listener = :name AND d.position >= :from_id
          AND d.state <> 'cancelled' AND d.dead_letter IS NULL
          AND EXISTS (SELECT FROM {log_name(tables)} AS o WHERE o.id = d.position)
        RETURNING d.position
        """
    ).bindparams(_NAME, _FROM)


def take_up_dead_letters(tables: Tables) -> TextClause:
    """Resolve as replayed the dead letters of :name from :from_id on whose events the cursor will
    read again: not edited ones, nor those whose event is gone from the log. A row each."""
    return text(
        f"""
        UPDATE {quoted(tables.dead_letters)} AS d
        SET resolution = 'replayed', resolved_at = {NOW}, resolved_by = :who,
            resolved_why = :why
        WHERE d.listener = :name AND d.position >= :from_id AND d.resolution IS NULL
          AND d.edits = 0
          AND EXISTS (SELECT FROM {log_name(tables)} AS o WHERE o.id = d.position)
        RETURNING d.id
        """
    ).bindparams(_NAME, _FROM, bindparam("who", type_=Text), bindparam("why", type_=Text))


def elsewhere(tables: Tables) -> TextClause:
    """One row: the ids from :from_id on that the listener :name has elsewhere, as a multirange: in
    a delivery's row, or an open dead letter."""
    return text(
        f"""
        SELECT CAST(coalesce(range_agg(int8range(position, position, '[]')), {_NONE}) AS text)
            AS ids
        FROM (
            SELECT position FROM {quoted(tables.deliveries)}
            WHERE listener = :name AND position >= :from_id
            UNION
            SELECT position FROM {quoted(tables.dead_letters)}
            WHERE listener = :name AND position >= :from_id AND resolution IS NULL
        ) AS placed
        """
    ).bindparams(_NAME, _FROM)


def untaken_up_to(tables: Tables) -> TextClause:
    """One row: the lowest id up to :to_id that a partition of :name has not claimed; None: none."""
    return text(
        f"""
        SELECT min(lower(part)) AS first FROM {quoted(tables.listeners)} AS l
        CROSS JOIN LATERAL unnest(
            coalesce({_GAPS.format("l.gaps")}, {_NONE})
            + CAST(int8range(l.last_processed_id + 1, NULL) AS int8multirange)) AS part
        WHERE l.name = :name AND lower(part) <= :to_id
        """
    ).bindparams(_NAME, bindparam("to_id", type_=BigInteger))


def missing(tables: Tables) -> TextClause:
    """One row: the ids from :from_id to :to_id that are not visible, as a multirange, and how many.
    Reads that much of the primary keys."""
    return text(
        f"""
        SELECT CAST(holes.ids AS text) AS ids, (
            SELECT CAST(coalesce(sum(upper(part) - lower(part)), 0) AS bigint)
            FROM unnest(holes.ids) AS part) AS count
        FROM (SELECT CAST(int8range(:from_id, :to_id, '[]') AS int8multirange) - coalesce((
                SELECT range_agg(int8range(id, id, '[]')) FROM {log_name(tables)}
                WHERE id BETWEEN :from_id AND :to_id), {_NONE}) AS ids) AS holes
        """
    ).bindparams(_FROM, bindparam("to_id", type_=BigInteger))


def find(tables: Tables) -> TextClause:
    """For the delivery of the event at :position to :name: untaken (of its partition), state of its
    row, range, key, event_id and event_type. One row, even if there is no such event."""
    part = partition_of("coalesce(d.key, o.key)", ":position", "l.partition_count")
    return text(
        f"""
        SELECT coalesce((
                SELECT bool_or(l.last_processed_id < :position
                    OR coalesce({_GAPS.format("l.gaps")}, {_NONE}) @> CAST(:position AS bigint))
                FROM {quoted(tables.listeners)} AS l WHERE l.name = :name
                  AND l.partition = {part}), false) AS untaken,
            d.state, d.range, coalesce(d.key, o.key) AS key,
            coalesce(d.event_id, o.event_id) AS event_id,
            coalesce(d.event_type, o.event_type) AS event_type,
            EXISTS (SELECT FROM {quoted(tables.ranges)} AS r
                    CROSS JOIN LATERAL jsonb_array_elements(r.gaps) AS gap
                    WHERE r.listener = :name AND CAST(:position AS bigint)
                        BETWEEN CAST(gap ->> 0 AS bigint) AND CAST(gap ->> 1 AS bigint))
                AS in_range
        FROM (VALUES (true)) AS one (row)
        LEFT JOIN {quoted(tables.deliveries)} AS d
               ON d.listener = :name AND d.position = :position
        LEFT JOIN {log_name(tables)} AS o ON o.id = :position
        """
    ).bindparams(_NAME, bindparam("position", type_=BigInteger))


def retire(tables: Tables) -> list[TextClause]:
    """Delete everything about the listener :name except its dead letters: ranges, deliveries, and
    last its cursors. Each returns a row for each row deleted."""
    return [
        text(f"DELETE FROM {quoted(table)} WHERE {column} = :name RETURNING 1").bindparams(_NAME)
        for table, column in (
            (tables.ranges, "listener"),
            (tables.deliveries, "listener"),
            (tables.listeners, "name"),
        )
    ]


def record(tables: Tables) -> TextClause:
    """Record that :who has done :action to the listener :name; :detail is a JSON object."""
    return text(
        f"""
        INSERT INTO {quoted(tables.audit)}
            (action, listener, event_id, event_type, actor_type, actor_id, detail)
        VALUES (:action, :name, :event_id, :event_type, 'operator', :who,
            jsonb_strip_nulls(CAST(:detail AS jsonb)))
        """
    ).bindparams(
        _NAME,
        bindparam("action", type_=Text),
        bindparam("who", type_=Text),
        bindparam("detail", type_=Text),
        bindparam("event_type", type_=Text),
        bindparam("event_id", type_=tables.audit.c.event_id.type),
    )
