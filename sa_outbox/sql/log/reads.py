"""Statements that read events from the log, for a listener.

Each returns the columns of ``event/row.py``, some with others after them. What is too large or
unreadable comes without a payload: ``large_events.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from sqlalchemy import bindparam
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.types import BigInteger, Double, Text

from ..server.names import log_name, quoted
from ..server.timed_text import text
from ..server.times import NOW
from . import large_events
from .horizon import drawn
from .matching import bound, filters, matches, meets, met

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import TextClause

    from ...database.tables import Tables
    from .matching import Part

_OF_A_DELIVERY = ", e.attempts, e.state"


def columns(*, source: str = "o", only_matching: bool = False) -> str:
    payload, headers = f"CAST({source}.payload AS text)", f"CAST({source}.headers AS text)"
    if only_matching:  # what nobody wants stays on the server
        payload = f"CASE WHEN {source}.matches THEN {payload} END"
        headers = f"CASE WHEN {source}.matches THEN {headers} END"
    return large_events.event_columns(source, payload=payload, headers=headers)


def event_of(tables: Tables, delivery: str = "d", position: str | None = None) -> str:
    """SQL for the event of a *delivery*'s row, to be joined LATERAL: from the log, or for a replay
    from its dead letter, which may have been edited, and outlives the log. Primary keys.

    *position* is the event's position when there may be no row.
    """
    common = "event_id, event_type, key, tenant, payload, headers, run_at, priority"
    return f"""(
        SELECT id, {common}, created_at FROM {log_name(tables)}
        WHERE id = {position or f"{delivery}.position"} AND {delivery}.dead_letter IS NULL
        UNION ALL
        SELECT position, {common}, event_created_at FROM {quoted(tables.dead_letters)}
        WHERE id = {delivery}.dead_letter)"""


def read_final(
    tables: Tables,
    types: Sequence[str],
    part: Part | None = None,
    *,
    where: str | None = None,
    carefully: bool = False,
) -> TextClause:
    """Up to :limit events of these *types* with :cursor < id <= :upper, oldest first.

    Only for an :upper that is final: ids missing from the answer are ignored. Types and partition
    are filtered on the server. Those that do not meet the filter *where* come without payload: they
    count as examined. Takes no locks. Served by the primary keys.
    """
    if where is not None:
        wanted = f" AND {matches(types, part)}"
        return _of_range(tables, types, part, where, wanted=wanted, carefully=carefully)
    chosen = large_events.readable_columns("o") if carefully else columns()
    return _either(
        f"""
        SELECT {chosen}, true AS matches FROM {log_name(tables)} AS o
        WHERE o.id > :cursor AND o.id <= :upper AND {matches(types, part)}
        ORDER BY o.id LIMIT :limit
        """,
        types,
        part,
        carefully=carefully,
    )


def read_all(
    tables: Tables,
    types: Sequence[str],
    part: Part | None = None,
    *,
    where: str | None = None,
    carefully: bool = False,
) -> TextClause:
    """Up to :limit events of ANY type with :cursor < id <= :upper, oldest first.

    For ids that are not final yet: those missing from the answer are holes of the log, so events of
    other types and partitions are included, without payload. Query the ceiling and the holders
    BEFORE: queried after, a writer that ended in between looks finished while its row is not in
    this snapshot. Takes no locks. Served by the partitions' primary keys.
    """
    return _of_range(tables, types, part, where, carefully=carefully)


def _of_range(
    tables: Tables,
    types: Sequence[str],
    part: Part | None,
    where: str | None,
    *,
    wanted: str = "",
    carefully: bool,
) -> TextClause:
    match = meets(matches(types, part), where, carefully=carefully)
    return _either(
        f"""
        SELECT {_of_any_type(carefully=carefully)}, o.matches FROM (
            SELECT *, {match} AS matches FROM {log_name(tables)}
            WHERE id > :cursor AND id <= :upper{wanted} ORDER BY id LIMIT :limit
        ) AS o ORDER BY o.id OFFSET 0
        """,
        types,
        part,
        where,
        carefully=carefully,
    )


def first_few(tables: Tables, types: Sequence[str], where: Sequence[str] = ()) -> TextClause:
    """Up to :limit events of any type that follow :cursor, without reading the horizon, up to the
    last drawn id: a chosen id would lead past those that are drawn later. For listeners with
    filters, *where*, also ``met``: those of the filters that an event meets."""
    chosen = matches(types)
    more = f", {met('payload', chosen)} AS met" if where else ""
    inner = f"""
        SELECT {_of_any_type(carefully=False)}, o.matches{", o.met" if where else ""} FROM (
            SELECT *, {chosen} AS matches{more} FROM {log_name(tables)}
            WHERE id > :cursor AND id <= ({drawn(tables)}) ORDER BY id LIMIT :limit
        ) AS o ORDER BY o.id OFFSET 0
        """
    statement = bound(large_events.plain(inner, more=", e.met" if where else ""), types)
    statement = statement.bindparams(filters(where)) if where else statement
    return large_events.each(statement)


def read_with_gaps(
    tables: Tables,
    types: Sequence[str],
    part: Part | None = None,
    *,
    where: str | None = None,
    carefully: bool = False,
) -> TextClause:
    """Up to :limit events of any type with :cursor < id <= :upper, and with them those in the
    ranges :lows to :highs, all in one snapshot.

    One snapshot, so that an event in a gap is never overtaken by a later one of its key that became
    visible between two statements. Oldest first, :limit in all: the gaps come first. Takes no
    locks. Served by the partitions' primary keys; LATERAL with a LIMIT, because a plain join was
    planned as a scan of the whole log in order of ids.
    """
    match = meets(matches(types, part), where, carefully=carefully)
    statement = _either(
        f"""
        SELECT {_of_any_type(carefully=carefully)}, o.matches FROM (
            SELECT *, {match} AS matches FROM (
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
        ) AS o ORDER BY o.id OFFSET 0
        """,
        types,
        part,
        where,
        carefully=carefully,
    )
    return statement.bindparams(
        bindparam("lows", type_=ARRAY(BigInteger)), bindparam("highs", type_=ARRAY(BigInteger))
    )


def _of_any_type(*, carefully: bool) -> str:
    if carefully:
        return large_events.readable_columns("o", only_matching=True)
    return columns(only_matching=True)


def _either(
    inner: str,
    types: Sequence[str],
    part: Part | None,
    where: str | None = None,
    *,
    carefully: bool,
) -> TextClause:
    if carefully:
        return large_events.limited(bound(large_events.careful(inner), types, part, where))
    return large_events.each(bound(large_events.plain(inner), types, part, where))


_ONLY = {
    "all": "",
    "suspects": "AND position = ANY (:suspects)",
    "earlier": """AND (due_at <= to_timestamp(:since) OR (
                  state = 'parked' AND attempts = 0 AND created_at <= to_timestamp(:since)))""",
}
_ONLY_TYPES = {
    "all": (),
    "suspects": (bindparam("suspects", type_=ARRAY(BigInteger)),),
    "earlier": (bindparam("since", type_=Double),),
}


def read_due(tables: Tables, only: Literal["all", "suspects", "earlier"] = "all") -> TextClause:
    """Up to :limit due deliveries of :listener, partition :part, each with what follows behind it
    in its key.

    Columns of an event, then attempts, state; a careful read. Those behind come after
    their head, in the order of their key, :limit for each head. Of a key with several that are
    parked (a replay puts one there while another waits) the first is the head, and those behind the
    next one wait for that. The listener's lease is the caller's. Locks those that are due for the
    moment, and passes by one that is being cancelled: its transaction has looked at the clock
    before. Served by the index on what is due, and the one on keys.

    *only* those in :suspects; or those that may have been attempted before :since (seconds since
    1970), because they were due then, or waited behind another one of their key.
    """
    deliveries = quoted(tables.deliveries)
    inner = f"""
        SELECT {large_events.readable_columns("o")}, true AS matches, d.attempts, d.state,
               chosen.due_at, chosen.head
        FROM chosen JOIN {deliveries} AS d
          ON d.listener = :listener AND d.position = chosen.position
        CROSS JOIN LATERAL {event_of(tables)} AS o OFFSET 0"""
    statement = text(
        f"""
        WITH due AS MATERIALIZED (
            SELECT position, key, state, due_at FROM {deliveries} AS w
            WHERE listener = :listener AND partition = :part
              AND state IN ('scheduled', 'parked') AND range IS NULL
              AND due_at <= {NOW} AND NOT position = ANY (:taken)
              {_ONLY[only]}
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
        {large_events.careful(inner, order="e.due_at, e.head, e.id", more=_OF_A_DELIVERY)}
        """
    ).bindparams(bindparam("taken", type_=ARRAY(BigInteger)), *_ONLY_TYPES[only])
    return large_events.limited(statement)


def read_again(tables: Tables) -> TextClause:
    """The events at :ids, in this order, as :listener would get them: to find out which of them
    can't be read. A careful read. Primary keys."""
    inner = f"""
        SELECT {large_events.readable_columns("o")}, true AS matches, chosen.place
        {_at_these_places(tables)} OFFSET 0"""
    statement = text(large_events.careful(inner, order="e.place"))
    return large_events.limited(statement).bindparams(*_PLACES)


def read_part(tables: Tables, part: str) -> TextClause:
    """One *part* of the events at :ids: payload, headers, or the texts of the event."""
    texts = {"payload": ["o.payload"], "headers": ["o.headers"]}
    chosen = texts.get(part, ["o.event_type", "o.key", "o.tenant"])
    wanted = ", ".join(f"left(CAST({each} AS text), {large_events.BUDGET})" for each in chosen)
    return text(f"SELECT {wanted} {_at_these_places(tables)}").bindparams(*_PLACES)


_PLACES = (bindparam("listener", type_=Text), bindparam("ids", type_=ARRAY(BigInteger)))


def _at_these_places(tables: Tables) -> str:
    return f"""
        FROM unnest(:ids) WITH ORDINALITY AS chosen (id, place)
        LEFT JOIN {quoted(tables.deliveries)} AS d
               ON d.listener = :listener AND d.position = chosen.id
        CROSS JOIN LATERAL {event_of(tables, position="chosen.id")} AS o"""
