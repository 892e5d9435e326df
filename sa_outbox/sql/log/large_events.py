"""Read events that may be too large, or unreadable.

A plain read is for small events: one that is larger than :each comes without payload and headers,
and its whole batch is read again, carefully. A careful read ends before it holds more than :budget
bytes of text (its first event comes anyway). An event that is larger than :largest, or in :refused,
comes without payload, headers and run_at; one that is in :unnamed, too, without key and tenant, and
with what can be shown of its type. Both are ids, and count only for the events in :refused_events:
after a failover another one may have the id. With :bare all of them come like that: it shows
which events a failing read was about to return.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import bindparam
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.types import BigInteger, Boolean, Uuid

from ...event.row import COLUMNS
from ..server.times import seconds_until

if TYPE_CHECKING:
    from sqlalchemy import TextClause

BUDGET = 16 * 2**20
"""Bytes of text per read; one more event if the first is larger."""
SMALL = 32 * 2**10
"""Bytes of text that a plain read returns of an event, however many events there are."""
LARGEST = 64 * 2**20
"""Bytes of text above which an event is not read."""
UNBOUNDED = 2**62

SHORT = 8_000
"""Bytes of a key or tenant that come with any event. No index holds a longer key."""

_TEXTS = ("event_type", "key", "tenant", "payload", "headers")
_SIZE = " + ".join(f"coalesce(octet_length({name}), 0)" for name in _TEXTS)


def in_ascii(column: str) -> str:
    """SQL for a text that may be very long or in no valid encoding: what can be shown of it."""
    return f"left(encode(convert_to({column}, 'SQL_ASCII'), 'escape'), 200)"


def event_columns(source: str, *, payload: str, headers: str) -> str:
    """The columns of an event but for ``matches``, as described in ``event/row.py``."""
    o = source
    return f"""
    {o}.id, {o}.event_id, {o}.event_type, {o}.key, {o}.tenant, {payload} AS payload,
    {headers} AS headers, CAST(extract(epoch FROM {o}.run_at) AS float8) AS run_at, {o}.priority,
    CAST(extract(epoch FROM {o}.created_at) AS float8) AS created_at,
    CASE WHEN {o}.run_at IS NOT NULL THEN {seconds_until(f"{o}.run_at")} END AS wait"""


def plain(inner: str, *, more: str = "") -> str:
    """*inner* selects events in order, and is planned by itself (LIMIT, OFFSET): each text is built
    once. *more* columns of it are kept."""
    fits = "octet_length(e.payload) + octet_length(e.headers) <= :each"
    texts = {name: f"CASE WHEN {fits} THEN e.{name} END" for name in ("payload", "headers")}
    return f"SELECT {selected(**texts)}{more} FROM ({inner}) AS e ORDER BY e.id"


def selected(**instead: str) -> str:
    """The columns of an event in their order, from a subquery ``e``; for some, SQL *instead*."""
    return ", ".join(
        f"{instead[name]} AS {name}" if name in instead else f"e.{name}" for name in COLUMNS
    )


def is_refused(of: str, *, ids: str = "refused") -> str:
    """SQL for whether less is to come of an event; *of* is what its columns' names begin with."""
    return f"(:bare OR ({of}id = ANY (:{ids}) AND {of}event_id = ANY (:refused_events)))"


def readable_columns(source: str, *, only_matching: bool = False) -> str:
    """The columns of an event for ``careful``: for a refused one, those that can be read."""
    o = source
    refused, unnamed = is_refused(f"{o}."), is_refused(f"{o}.", ids="unnamed")
    wanted = f"NOT {refused} AND {o}.matches" if only_matching else f"NOT {refused}"
    run_at = f"CAST(extract(epoch FROM {o}.run_at) AS float8)"
    created_at = f"CAST(extract(epoch FROM {o}.created_at) AS float8)"
    wait = f"{o}.run_at IS NOT NULL AND NOT {refused}"
    return f"""
    {o}.id, {o}.event_id,
    CASE WHEN {unnamed} THEN {in_ascii(f"{o}.event_type")} ELSE {o}.event_type END AS event_type,
    CASE WHEN NOT {unnamed} THEN {o}.key END AS key,
    CASE WHEN NOT {unnamed} THEN {o}.tenant END AS tenant,
    CASE WHEN {wanted} THEN CAST({o}.payload AS text) END AS payload,
    CASE WHEN {wanted} THEN CAST({o}.headers AS text) END AS headers,
    CASE WHEN NOT {refused} THEN {run_at} END AS run_at,
    CAST(CASE WHEN {refused} THEN 0 ELSE {o}.priority END AS smallint) AS priority,
    {created_at} AS created_at,
    CASE WHEN {wait} THEN {seconds_until(f"{o}.run_at")} END AS wait"""


def careful(inner: str, *, order: str = "id", more: str = "") -> str:
    """Wraps *inner*, as for ``plain``, with ``readable_columns`` and *more* columns to keep. They
    are followed by size (bytes of text) and so_far (the running sum, including this event)."""
    fits = "e.size <= :largest"
    comes = f"CASE WHEN {fits} THEN e.size ELSE 0 END"
    texts = {name: f"CASE WHEN {fits} THEN e.{name} END" for name in ("payload", "headers")}
    for name in ("key", "tenant"):
        texts[name] = f"CASE WHEN {fits} OR octet_length(e.{name}) <= {SHORT} THEN e.{name} END"
    texts["event_type"] = f"CASE WHEN {fits} THEN e.event_type ELSE left(e.event_type, 200) END"
    return f"""
        SELECT {selected(**texts)}{more}, e.size, e.so_far
        FROM (
            SELECT e.*, CAST(sum({comes}) OVER (ORDER BY {order} ROWS UNBOUNDED PRECEDING)
                             AS bigint) AS so_far
            FROM (SELECT e.*, {_SIZE} AS size FROM ({inner}) AS e OFFSET 0) AS e
        ) AS e WHERE e.so_far - {comes} < :budget ORDER BY {order}
        """


def limited(statement: TextClause, *, budget: int = BUDGET) -> TextClause:
    """With the limits of a careful read, unless the caller has others."""
    return statement.bindparams(
        bindparam("bare", value=False, type_=Boolean),
        bindparam("refused", value=[], type_=ARRAY(BigInteger)),
        bindparam("unnamed", value=[], type_=ARRAY(BigInteger)),
        bindparam("refused_events", value=[], type_=ARRAY(Uuid)),
        bindparam("largest", LARGEST, type_=BigInteger),
        bindparam("budget", budget, type_=BigInteger),
    )


def each(statement: TextClause) -> TextClause:
    """With the limit of a plain read."""
    return statement.bindparams(bindparam("each", SMALL, type_=BigInteger))
