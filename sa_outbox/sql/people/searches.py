"""Statements that find events and dead letters, for operators.

Each page is bounded: it begins at an id from the previous page, and reads a window of ids. Payloads
and headers come as text: one that a driver can't decode is still shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import bindparam
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.types import BigInteger, DateTime, Integer, Text, Uuid

from ..log.matching import like
from ..server.names import log_name, quoted
from ..server.timed_text import text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import TextClause
    from sqlalchemy.sql.elements import BindParameter

    from ...database.tables import Tables

# A time that no driver can represent (infinity) is omitted, instead of failing the whole page.
_RUN_AT = "CASE WHEN {0}.run_at BETWEEN '0001-01-02' AND '9999-01-01' THEN {0}.run_at END AS run_at"
_TEXTS = "CAST({0}.payload AS text) AS payload, CAST({0}.headers AS text) AS headers"
_SUMMARY = (
    "o.id, o.event_id, o.event_type, o.key, o.tenant, o.created_at, o.priority, "
    + _RUN_AT.format("o")
)
_DEAD = (
    "d.id, d.listener, d.position, d.event_id, d.event_type, d.key, d.tenant,"
    " d.event_created_at, d.priority, d.reason, d.attempts, d.crashes, d.failed_at,"
    " d.resolution, d.resolved_at, d.resolved_by, d.resolved_why, d.edits,"
    " d.errors -> -1 ->> 'code' AS error_code, d.errors -> -1 ->> 'message' AS error_message,"
    " d.error_fingerprint, " + _RUN_AT.format("d")
)
_PATTERNS = "({0}.event_type = ANY (:names) OR {0}.event_type LIKE ANY (:patterns))"

_EVENT_CONDITIONS = {
    "types": _PATTERNS.format("o"),
    "key": "o.key = :key",
    "tenant": "o.tenant = :tenant",
    "since": "o.created_at >= :since",
    "until": "o.created_at < :until",
}
_DEAD_CONDITIONS = {
    "ids": "d.id = ANY (:ids)",
    "listener": "d.listener = :listener",
    "types": _PATTERNS.format("d"),
    "key": "d.key = :key",
    "tenant": "d.tenant = :tenant",
    "reason": "d.reason = :reason",
    "code": "d.errors -> -1 ->> 'code' = :code",
    "fingerprint": "d.error_fingerprint = :fingerprint",
    "event_id": "d.event_id = :event_id",
    "since": "d.failed_at >= :since",
    "until": "d.failed_at < :until",
    "resolution": "d.resolution = :resolution",
    "open": "d.resolution IS NULL",
}
_TYPES: dict[str, BindParameter[object]] = {
    "ids": bindparam("ids", type_=ARRAY(BigInteger)),
    "since": bindparam("since", type_=DateTime(timezone=True)),
    "until": bindparam("until", type_=DateTime(timezone=True)),
    "event_id": bindparam("event_id", type_=Uuid),
    **{
        name: bindparam(name, type_=Text)
        for name in ("listener", "key", "tenant", "reason", "code", "fingerprint", "resolution")
    },
}


def patterns(types: Sequence[str]) -> dict[str, list[str]]:
    """The parameters of these event types, some of them with ``*``."""
    return {
        "names": [one for one in types if "*" not in one],
        "patterns": [like(one) for one in types if "*" in one],
    }


def events(tables: Tables, given: Sequence[str]) -> TextClause:
    """Up to :limit events with :lower <= id <= :upper that match the named conditions *given*,
    newest first, without their payload.

    Takes no locks. Primary keys of the partitions; the caller keeps the window small.
    """
    return _with_types(
        f"""
        SELECT {_SUMMARY} FROM {log_name(tables)} AS o
        WHERE o.id BETWEEN :lower AND :upper{_also(_EVENT_CONDITIONS, given)}
        ORDER BY o.id DESC LIMIT :limit
        """,
        given,
    ).bindparams(
        bindparam("lower", type_=BigInteger),
        bindparam("upper", type_=BigInteger),
        bindparam("limit", type_=Integer),
    )


def ends(tables: Tables) -> TextClause:
    """First and last id of the log, None for an empty one. The ends of primary keys."""
    name = log_name(tables)
    return text(
        f"SELECT (SELECT min(id) FROM {name}) AS first, (SELECT max(id) FROM {name}) AS last"
    )


def written_from(tables: Tables) -> TextClause:
    """Id and created_at of the first event from :id on. One row of an index."""
    return text(
        f"SELECT id, created_at FROM {log_name(tables)} WHERE id >= :id ORDER BY id LIMIT 1"
    ).bindparams(bindparam("id", type_=BigInteger))


def event(tables: Tables, *, by_position: bool) -> TextClause:
    """The event at :position, or the one with :event_id, with payload and headers as text.

    Takes no locks. Primary key, or the index on event ids.
    """
    condition = "o.id = :position" if by_position else "o.event_id = :event_id"
    asked = (
        bindparam("position", type_=BigInteger)
        if by_position
        else bindparam("event_id", type_=Uuid)
    )
    return text(
        f"SELECT {_SUMMARY}, {_TEXTS.format('o')} FROM {log_name(tables)} AS o WHERE {condition}"
    ).bindparams(asked)


def dead_letters(tables: Tables, given: Sequence[str], *, oldest_first: bool = False) -> TextClause:
    """Up to :limit dead letters beyond the id :beyond that match the named conditions *given*,
    newest or oldest first; without their payload.

    Takes no locks. Primary key, or the index on unresolved ones.
    """
    beyond, order = ("d.id > :beyond", "ASC") if oldest_first else ("d.id < :beyond", "DESC")
    return _with_types(
        f"""
        SELECT {_DEAD} FROM {quoted(tables.dead_letters)} AS d
        WHERE {beyond}{_also(_DEAD_CONDITIONS, given)}
        ORDER BY d.id {order} LIMIT :limit
        """,
        given,
    ).bindparams(bindparam("beyond", type_=BigInteger), bindparam("limit", type_=Integer))


def count_dead_letters(tables: Tables, given: Sequence[str]) -> TextClause:
    """How many dead letters match the named conditions *given*, counted up to :most."""
    return _with_types(
        f"""
        SELECT count(*) AS count FROM (
            SELECT FROM {quoted(tables.dead_letters)} AS d
            WHERE true{_also(_DEAD_CONDITIONS, given)} LIMIT :most
        ) AS few
        """,
        given,
    ).bindparams(bindparam("most", type_=BigInteger))


def dead_letter_groups(tables: Tables, given: Sequence[str]) -> TextClause:
    """Dead letters that match the named conditions *given*, by the fingerprint of their last
    error; up to :limit groups, the largest first. Each with its count, first and last time, up to
    ten of its listeners and how many there are, and the newest of them as a sample.

    Takes no locks. Reads only the index on errors of unresolved ones, if no condition needs more.
    """
    dead = quoted(tables.dead_letters)
    return _with_types(
        f"""
        WITH parts AS (
            SELECT d.error_fingerprint, d.listener, count(*) AS count, max(d.id) AS sample,
                   min(d.failed_at) AS first_at, max(d.failed_at) AS last_at
            FROM {dead} AS d
            WHERE true{_also(_DEAD_CONDITIONS, given)}
            GROUP BY d.error_fingerprint, d.listener
        ), largest AS (
            SELECT error_fingerprint, CAST(sum(count) AS bigint) AS count, max(sample) AS sample,
                   min(first_at) AS first_at, max(last_at) AS last_at,
                   count(*) AS listener_count,
                   (array_agg(listener ORDER BY count DESC, listener))[1:10] AS listeners
            FROM parts GROUP BY error_fingerprint
            ORDER BY sum(count) DESC, max(sample) DESC LIMIT :limit
        )
        SELECT g.*, d.event_type, d.errors -> -1 ->> 'error' AS error_class,
               d.errors -> -1 ->> 'code' AS error_code,
               left(d.errors -> -1 ->> 'message', 500) AS error_message
        FROM largest AS g JOIN {dead} AS d ON d.id = g.sample
        ORDER BY g.count DESC, g.sample DESC
        """,
        given,
    ).bindparams(bindparam("limit", type_=Integer))


def dead_letter(tables: Tables) -> TextClause:
    """The dead letter :id, with payload, headers and the errors of every attempt as text."""
    return text(
        f"""
        SELECT {_DEAD}, {_TEXTS.format("d")}, CAST(d.errors AS text) AS errors
        FROM {quoted(tables.dead_letters)} AS d WHERE d.id = :id
        """
    ).bindparams(bindparam("id", type_=BigInteger))


def chosen(statement: str, given: Sequence[str]) -> TextClause:
    """*statement* on dead letters ``d``, with what is *given* by name at ``{conditions}``."""
    return _with_types(statement.format(conditions=_also(_DEAD_CONDITIONS, given)), given)


def _also(conditions: Mapping[str, str], given: Sequence[str]) -> str:
    return "".join(f" AND {conditions[name]}" for name in given)


def _with_types(statement: str, given: Sequence[str]) -> TextClause:
    built = text(statement).bindparams(*(_TYPES[name] for name in given if name in _TYPES))
    if "types" not in given:
        return built
    return built.bindparams(
        bindparam("names", type_=ARRAY(Text)), bindparam("patterns", type_=ARRAY(Text))
    )
