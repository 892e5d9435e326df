"""Statements that read events from the log, for a listener.

Columns of each: id, event_id, event_type, key, tenant, payload and headers as text (one value that
can't be decoded then fails alone, not its whole batch), run_at and created_at as seconds since
1970 (no timestamp is beyond a float), priority, wait (seconds until run_at; None without one),
and matches (whether the listener asked for this type, and it is of its partition).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from sqlalchemy import bindparam, text
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.types import BigInteger, Text

from .names import log_name, quoted
from .partitions import partition_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import TextClause

    from ..tables import Tables

Part: TypeAlias = tuple[int, int]
"""A partition of a listener, and how many it has."""

_EVENT = """
    {o}.id, {o}.event_id, {o}.event_type, {o}.key, {o}.tenant, {payload}, {headers},
    CAST(extract(epoch FROM {o}.run_at) AS float8) AS run_at, {o}.priority,
    CAST(extract(epoch FROM {o}.created_at) AS float8) AS created_at,
    CASE WHEN {o}.run_at IS NOT NULL
         THEN CAST(extract(epoch FROM {o}.run_at - clock_timestamp()) AS float8) END AS wait"""


def columns(*, source: str = "o", only_matching: bool = False) -> str:
    payload, headers = f"CAST({source}.payload AS text)", f"CAST({source}.headers AS text)"
    if only_matching:  # what nobody asked for stays on the server
        payload = f"CASE WHEN {source}.matches THEN {payload} END"
        headers = f"CASE WHEN {source}.matches THEN {headers} END"
    return _EVENT.format(o=source, payload=f"{payload} AS payload", headers=f"{headers} AS headers")


def event_of(tables: Tables, delivery: str = "d", position: str | None = None) -> str:
    """SQL for the event of a *delivery*'s row, to be joined LATERAL: from the log, or for a replay
    from its dead letter, which may have been edited, and outlives the log. Primary keys.

    *position* is where the event stands when there may be no row.
    """
    common = "event_id, event_type, key, tenant, payload, headers, run_at, priority"
    return f"""(
        SELECT id, {common}, created_at FROM {log_name(tables)}
        WHERE id = {position or f"{delivery}.position"} AND {delivery}.dead_letter IS NULL
        UNION ALL
        SELECT position, {common}, event_created_at FROM {quoted(tables.dead_letters)}
        WHERE id = {delivery}.dead_letter)"""


def matches(types: Sequence[str], part: Part | None = None) -> str:
    wanted = "(event_type = ANY (:names) OR event_type LIKE ANY (:patterns))"
    chosen = "true" if "*" in types else wanted
    if part is None:
        return chosen
    return f"({chosen} AND {partition_of('key', 'id', ':count')} = :part)"


def bound(statement: str, types: Sequence[str], part: Part | None = None) -> TextClause:
    built = text(statement)
    if part is not None:
        number, count = part
        built = built.bindparams(
            bindparam("part", number, type_=BigInteger), bindparam("count", count, type_=BigInteger)
        )
    if "*" in types:
        return built
    exact = [one for one in types if "*" not in one]
    patterns = [like(one) for one in types if "*" in one]
    return built.bindparams(
        bindparam("names", exact, type_=ARRAY(Text)),
        bindparam("patterns", patterns, type_=ARRAY(Text)),
    )


def like(pattern: str) -> str:
    escaped = pattern.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return escaped.replace("*", "%")


def read_final(tables: Tables, types: Sequence[str], part: Part | None = None) -> TextClause:
    """Up to :limit events of these *types* with :cursor < id <= :upper, oldest first.

    Only for an :upper that is final: ids that are missing from the answer are not looked at. The
    types and the partition are chosen on the server. Takes no locks. Served by the primary keys.
    """
    return bound(
        f"""
        SELECT {columns()}, true AS matches FROM {log_name(tables)} AS o
        WHERE o.id > :cursor AND o.id <= :upper AND {matches(types, part)}
        ORDER BY o.id LIMIT :limit
        """,
        types,
        part,
    )


def read_all(tables: Tables, types: Sequence[str], part: Part | None = None) -> TextClause:
    """Up to :limit events of ANY type with :cursor < id <= :upper, oldest first.

    For ids that are not final yet: those missing from the answer are holes of the log, so events
    of other types and partitions are in it too, without payload. Ask for the ceiling and the
    holders BEFORE: asked after, a writer that ended in between looks finished while its row is not
    in this snapshot. Takes no locks. Served by the partitions' primary keys.
    """
    return bound(
        f"""
        SELECT {columns(only_matching=True)}, o.matches FROM (
            SELECT *, {matches(types, part)} AS matches FROM {log_name(tables)}
            WHERE id > :cursor AND id <= :upper ORDER BY id LIMIT :limit
        ) AS o ORDER BY o.id
        """,
        types,
        part,
    )


def read_with_gaps(tables: Tables, types: Sequence[str], part: Part | None = None) -> TextClause:
    """The same, and with it the ids in the ranges :lows to :highs, all in one snapshot.

    One snapshot, so that an event in a gap is never passed by a later one of its key that became
    visible between two statements. Oldest first, :limit in all: the gaps come first. Takes no
    locks. Served by the partitions' primary keys; LATERAL with a LIMIT, for a plain join was
    planned as a scan of the whole log in the order of its ids.
    """
    statement = bound(
        f"""
        SELECT {columns(only_matching=True)}, o.matches FROM (
            SELECT *, {matches(types, part)} AS matches FROM (
                (SELECT l.* FROM unnest(:lows, :highs) AS gap (lo, hi)
                 CROSS JOIN LATERAL (
                     SELECT * FROM {log_name(tables)}
                     WHERE id BETWEEN gap.lo AND gap.hi ORDER BY id LIMIT :limit
                 ) AS l
                 ORDER BY l.id LIMIT :limit)
                UNION ALL
                (SELECT * FROM {log_name(tables)}
                 WHERE id > :cursor AND id <= :upper ORDER BY id LIMIT :limit)
            ) AS either ORDER BY id LIMIT :limit
        ) AS o ORDER BY o.id
        """,
        types,
        part,
    )
    return statement.bindparams(
        bindparam("lows", type_=ARRAY(BigInteger)), bindparam("highs", type_=ARRAY(BigInteger))
    )


def read_due(tables: Tables) -> TextClause:
    """Up to :limit deliveries of :listener, partition :part, that are due, with what follows
    behind each in its key.

    Columns of an event, then attempts, crashes, state. Those behind come after their head, in the
    order of their key, :limit for each head. Of a key with several that are parked (a replay puts
    one there while another waits) the first is the head, and those behind the next one wait for
    that. The listener's lease is the caller's. Locks those that
    are due for the moment, and passes by one that is being cancelled: its transaction has looked at
    the clock before. Served by the index on what is due, and the one on keys.
    """
    deliveries = quoted(tables.deliveries)
    return text(
        f"""
        WITH due AS MATERIALIZED (
            SELECT position, key, state, due_at FROM {deliveries} AS w
            WHERE listener = :listener AND partition = :part
              AND state IN ('scheduled', 'parked') AND range IS NULL
              AND due_at <= clock_timestamp() AND NOT position = ANY (:taken)
              AND NOT (state = 'parked' AND key IS NOT NULL AND EXISTS (
                  SELECT FROM {deliveries} AS earlier
                  WHERE earlier.listener = w.listener AND earlier.key = w.key
                    AND earlier.position < w.position AND earlier.state = 'parked'))
            ORDER BY priority DESC, due_at LIMIT :limit FOR SHARE SKIP LOCKED
        ), chosen AS (
            SELECT position, due_at, position AS head FROM due
            UNION ALL
            SELECT b.position, due.due_at, due.position FROM due CROSS JOIN LATERAL (
                SELECT position, bool_or(state = 'parked') OVER (ORDER BY position) AS waits
                FROM {deliveries}
                WHERE listener = :listener AND key = due.key AND state IN ('parked', 'behind')
                  AND position <> due.position
                ORDER BY position LIMIT :limit
            ) AS b
            WHERE due.key IS NOT NULL AND due.state = 'parked' AND NOT b.waits
        )
        SELECT {columns()}, true AS matches, d.attempts, d.crashes, d.state
        FROM chosen JOIN {deliveries} AS d
          ON d.listener = :listener AND d.position = chosen.position
        CROSS JOIN LATERAL {event_of(tables)} AS o
        ORDER BY chosen.due_at, chosen.head, d.position
        """
    ).bindparams(bindparam("taken", type_=ARRAY(BigInteger)))
