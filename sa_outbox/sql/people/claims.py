"""The statement that lists what the processes of queues have claimed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import bindparam
from sqlalchemy.types import Integer, Text

from ..server.names import quoted
from ..server.timed_text import text
from ..server.times import NOW

if TYPE_CHECKING:
    from sqlalchemy import TextClause

    from ...database.tables import Tables


def claimed_ranges(tables: Tables) -> TextClause:
    """The first :limit ranges, of :queue unless it is NULL: queue, number, events (ids not
    settled), first_id, owner (NULL: nobody holds it), lease_seconds, crashes.

    Takes no locks. A small table.
    """
    held = f"r.locked_by IS NOT NULL AND r.lease_expires_at > {NOW}"
    seconds = f"CAST(extract(epoch FROM r.lease_expires_at - {NOW}) AS float8)"
    return text(
        f"""
        SELECT r.listener AS queue, r.number, r.crashes, gaps.events, gaps.first_id,
            CASE WHEN {held} THEN r.locked_by END AS owner,
            CASE WHEN {held} THEN {seconds} END AS lease_seconds
        FROM {quoted(tables.ranges)} AS r
        CROSS JOIN LATERAL (
            SELECT CAST(sum(CAST(gap ->> 1 AS bigint) - CAST(gap ->> 0 AS bigint) + 1) AS bigint)
                    AS events,
                min(CAST(gap ->> 0 AS bigint)) AS first_id
            FROM jsonb_array_elements(r.gaps) AS gap
        ) AS gaps
        WHERE :queue IS NULL OR r.listener = :queue
        ORDER BY r.listener, r.number LIMIT :limit
        """
    ).bindparams(bindparam("queue", type_=Text), bindparam("limit", type_=Integer))
