"""Partitions of a listener: which one an event belongs to, and changing how many there are.

``consumer/position/partition.py`` is the first in Python, ``consumer/position/merge.py`` has the
arithmetic of the second, docs/partitions.md the argument.
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
    from sqlalchemy import TextClause

    from ...database.tables import Tables

BARRIER_SECONDS = 30.0
"""How long a barrier blocks cursors if whoever set it is gone."""


def partition_of(key: str, position: str, count: str) -> str:
    """SQL for the partition of an event with this *key* and *position*. Also for every
    statement that writes a row of ``outbox_deliveries``."""
    digest = f"substring(sha256(convert_to({key}, 'UTF8')) FROM 1 FOR 4)"
    number = f"CAST(CAST('x' || encode({digest}, 'hex') AS bit(32)) AS bigint)"
    return f"mod(CASE WHEN {key} IS NULL THEN {position} ELSE {number} END, {count})"


def listener_names(tables: Tables) -> TextClause:
    """The names of all registered listeners, in order. Takes no locks. A small table."""
    return text(f"SELECT DISTINCT name FROM {quoted(tables.listeners)} ORDER BY name")


def stands(tables: Tables, *, lock: bool = False) -> TextClause:
    """The state of each partition of the listener :name, in order.

    part, count, position, gaps (text), held (under an unexpired lease), token, crashes. With
    *lock*, nobody writes the rows until the transaction ends.
    """
    return text(
        f"""
        SELECT partition AS part, partition_count AS count, last_processed_id AS position,
            CAST(gaps AS text) AS gaps, lease_token AS token,
            locked_by IS NOT NULL AND lease_expires_at > {NOW} AS held,
            crashes + CASE WHEN locked_by IS NOT NULL THEN 1 ELSE 0 END AS crashes
        FROM {quoted(tables.listeners)} WHERE name = :name
        ORDER BY partition{" FOR UPDATE" if lock else ""}
        """
    ).bindparams(bindparam("name", type_=Text))


def set_barrier(tables: Tables) -> TextClause:
    """Make the cursors of :name read no further than :barrier, for a while."""
    return text(
        f"""
        UPDATE {quoted(tables.listeners)}
        SET barrier = :barrier,
            barrier_expires_at = {NOW} + make_interval(secs => {BARRIER_SECONDS})
        WHERE name = :name
        """
    ).bindparams(bindparam("name", type_=Text), bindparam("barrier", type_=BigInteger))


def lift_barrier(tables: Tables) -> TextClause:
    """Let the cursors of :name continue."""
    return text(
        f"UPDATE {quoted(tables.listeners)} SET barrier = NULL, barrier_expires_at = NULL"
        " WHERE name = :name AND barrier IS NOT NULL"
    ).bindparams(bindparam("name", type_=Text))


def visible(tables: Tables) -> TextClause:
    """Up to :limit events in the ranges :lows to :highs: id, and its part of :count partitions.

    Served by the partitions' primary keys; LATERAL for the reason given in
    ``reads.read_with_gaps``.
    """
    return text(
        f"""
        SELECT o.id, {partition_of("o.key", "o.id", ":count")} AS part
        FROM unnest(:lows, :highs) AS doubtful (lo, hi)
        CROSS JOIN LATERAL (
            SELECT id, key FROM {log_name(tables)}
            WHERE id BETWEEN doubtful.lo AND doubtful.hi ORDER BY id LIMIT :limit
        ) AS o LIMIT :limit
        """
    ).bindparams(
        bindparam("lows", type_=ARRAY(BigInteger)),
        bindparam("highs", type_=ARRAY(BigInteger)),
        bindparam("count", type_=BigInteger),
        bindparam("limit", type_=BigInteger),
    )


def remove_partitions(tables: Tables) -> TextClause:
    """Delete the partitions of :name from :count on."""
    return text(
        f"DELETE FROM {quoted(tables.listeners)} WHERE name = :name AND partition >= :count"
    ).bindparams(bindparam("name", type_=Text), bindparam("count", type_=Integer))


def reset_partitions(tables: Tables) -> TextClause:
    """Turn the remaining rows of :name into :count partitions at :position with these :gaps.

    :token is above all previous ones: a process that was suspended meanwhile can write nothing.
    What is known about an event that crashed its process (suspects) may belong to another partition
    now, and is found out again.
    """
    return text(
        f"""
        UPDATE {quoted(tables.listeners)}
        SET partition_count = :count, last_processed_id = :position, gaps = CAST(:gaps AS jsonb),
            revision = revision + 1, lease_token = :token, locked_by = NULL,
            lease_expires_at = NULL, barrier = NULL, barrier_expires_at = NULL,
            crashes = :crashes, crashed_terms = '{{}}', suspects = '{{}}',
            updated_at = {NOW}
        WHERE name = :name
        """
    ).bindparams(
        bindparam("name", type_=Text),
        bindparam("count", type_=Integer),
        bindparam("position", type_=BigInteger),
        bindparam("gaps", type_=Text),
        bindparam("token", type_=BigInteger),
        bindparam("crashes", type_=Integer),
    )


def add_partitions(tables: Tables) -> TextClause:
    """Create the partitions of :name from :first to the last, like its first one."""
    columns = (
        "partition_count, last_processed_id, gaps, revision, lease_token, crashes, paused_at,"
        " fingerprint, event_types, payload_filter, tenant, ordering"
    )
    return text(
        f"""
        INSERT INTO {quoted(tables.listeners)} (name, partition, {columns})
        SELECT l.name, added.number, {columns}
        FROM {quoted(tables.listeners)} AS l
        CROSS JOIN LATERAL generate_series(:first, l.partition_count - 1) AS added (number)
        WHERE l.name = :name AND l.partition = 0
        """
    ).bindparams(bindparam("name", type_=Text), bindparam("first", type_=Integer))


def move_deliveries(tables: Tables) -> TextClause:
    """Assign every delivery of :name to its part of :count partitions."""
    return text(
        f"""
        UPDATE {quoted(tables.deliveries)}
        SET partition = {partition_of("key", "position", ":count")}
        WHERE listener = :name
        """
    ).bindparams(bindparam("name", type_=Text), bindparam("count", type_=BigInteger))
