"""SQL for which events of the log a listener wants: its types, its partition, its filter.

A filter is compared where an event has been chosen by its type already, in a column ``matches`` and
never in a WHERE with a LIMIT: such a read examines as many payloads as it returns rows. So it is
bounded however few events match, and reading the same rows without their payloads
(``consumer/loop/isolation.py``) finds one whose payload can't be compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from sqlalchemy import bindparam
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.types import BigInteger, Text

from ...event.type_patterns import excluded, wanted
from ..server.timed_text import text
from .large_events import is_refused
from .listener_partitions import partition_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import BindParameter, TextClause

Part: TypeAlias = tuple[int, int]
"""A partition of a listener, and how many it has."""


def matches(types: Sequence[str], part: Part | None = None) -> str:
    any_of = "(event_type = ANY (:names) OR event_type LIKE ANY (:patterns))"
    chosen = "true" if "*" in types else any_of
    if excluded(types):
        others = "(event_type = ANY (:other_names) OR event_type LIKE ANY (:other_patterns))"
        chosen = f"({chosen} AND NOT {others})"
    if part is None:
        return chosen
    return f"({chosen} AND {partition_of('key', 'id', ':count')} = :part)"


def meets(chosen: str, where: str | None, *, carefully: bool = False) -> str:
    """SQL for whether an event that is *chosen* meets the filter *where*, if there is one.

    CASE, because its order is kept: the payload of another event is not touched, which may be large
    or unreadable. A refused event (*carefully*) meets every filter: nobody can tell, and a dead
    letter is better than an event that vanishes.
    """
    if where is None:
        return chosen
    refused = f"WHEN {is_refused('')} THEN true" if carefully else ""
    return f"CASE WHEN NOT {chosen} THEN false {refused} ELSE payload @> CAST(:where AS jsonb) END"


def met(payload: str, chosen: str = "true") -> str:
    """SQL for those of :filters that a *payload* meets, if it is *chosen*: an array of text."""
    return f"""ARRAY(
        SELECT one.known FROM unnest(:filters, CAST(:filters AS jsonb[])) AS one (known, fields)
        WHERE CASE WHEN {chosen} THEN {payload} @> one.fields ELSE false END)"""


NONE_MET = "CAST(ARRAY[] AS text[])"
"""``met`` without filters: a role that may not read payloads may run the statement."""


def filters(given: Sequence[str] = ()) -> BindParameter[Sequence[str]]:
    return bindparam("filters", list(given), type_=ARRAY(Text))


def bound(
    statement: str, types: Sequence[str], part: Part | None = None, where: str | None = None
) -> TextClause:
    built = text(statement)
    if where is not None:
        built = built.bindparams(bindparam("where", where, type_=Text))
    if part is not None:
        number, count = part
        built = built.bindparams(
            bindparam("part", number, type_=BigInteger), bindparam("count", count, type_=BigInteger)
        )
    others = excluded(types)
    if others:
        built = built.bindparams(*_names_and_patterns("other_", others))
    if "*" in types:
        return built
    return built.bindparams(*_names_and_patterns("", wanted(types)))


def _names_and_patterns(prefix: str, types: Sequence[str]) -> list[BindParameter[Any]]:
    names = [one for one in types if "*" not in one]
    patterns = [like(one) for one in types if "*" in one]
    return [
        bindparam(f"{prefix}names", names, type_=ARRAY(Text)),
        bindparam(f"{prefix}patterns", patterns, type_=ARRAY(Text)),
    ]


def like(pattern: str) -> str:
    escaped = pattern.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return escaped.replace("*", "%")
