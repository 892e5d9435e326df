"""Statements on what is known about events that may have crashed a process.

In the leased row, a listener's or a range's:

``crashed_terms``: the tokens of the terms whose holder vanished, the latest ones; ``crashes`` is
how many there were.

``suspects``: an object with an entry for each event that was being attempted when a holder
vanished, or is being attempted by a careful holder. Its value is an array of the tokens (as text)
of the terms in which it was attempted alone and has not ended: each is one crash. A term can add
itself once, and retract only itself.

Events with a row of their own are included too: what is known about them is then written under the
same lease that fences everything else, and is forgotten with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import bindparam
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.types import BigInteger, Double, Text

from ..server.names import quoted
from ..server.timed_text import text
from ..server.times import SERVER_NOW
from .renewal import RENEWED

if TYPE_CHECKING:
    from sqlalchemy import TextClause

    from ...database.tables import Tables

MAX_TERMS = 50
"""How many tokens of crashed terms are kept."""
CRASHED = f"(crashed_terms || {{}})[greatest(1, cardinality(crashed_terms) - {MAX_TERMS - 2}):]"
"""SQL for ``crashed_terms`` with one more."""
NOTHING = "crashes = 0, crashed_terms = '{}', suspects = '{}'"
"""SQL that clears everything known."""

_TERM = (
    bindparam("name", type_=Text),
    bindparam("part", type_=BigInteger),
    bindparam("token", type_=BigInteger),
)
_STAND = (
    bindparam("owner", type_=Text),
    bindparam("old", type_=BigInteger),
    bindparam("revision", type_=BigInteger),
    bindparam("duration", type_=Double),
)
_FENCED = (
    "lease_token = :token AND last_processed_id = :old AND revision = :revision"
    " AND locked_by = :owner"
)


def _row(tables: Tables, *, ranges: bool) -> tuple[str, str]:
    """The table, and which row of it."""
    if ranges:
        return quoted(tables.ranges), "listener = :name AND number = :part"
    return quoted(tables.listeners), "name = :name AND partition = :part"


def note(tables: Tables, *, ranges: bool = False) -> TextClause:
    """Record that the events :positions are about to be attempted, together with others.

    What is already known about one is kept. One row if the term :token is still valid. Renews it.
    """
    table, which = _row(tables, ranges=ranges)
    return text(
        f"""
        UPDATE {table} SET suspects = (
            SELECT jsonb_object_agg(position, CAST('[]' AS jsonb))
            FROM unnest(:positions) AS noted (position)) || suspects, {RENEWED}
        WHERE {which} AND {_FENCED} RETURNING lease_token
        """
    ).bindparams(*_TERM, *_STAND, bindparam("positions", type_=ARRAY(BigInteger)))


def mark(tables: Tables, *, ranges: bool = False) -> TextClause:
    """Count, once for this term, that the event at :suspect is about to be attempted alone.

    Returns in how many terms it was attempted without ending. If it crashes the process, the mark
    stays.
    """
    table, which = _row(tables, ranges=ranges)
    suspect = "CAST(:suspect AS text)"
    return text(
        f"""
        UPDATE {table} SET suspects = jsonb_set(suspects, ARRAY[{suspect}],
            (coalesce(suspects -> {suspect}, '[]') - CAST(:token AS text))
            || to_jsonb(CAST(:token AS text))), {RENEWED}
        WHERE {which} AND {_FENCED} RETURNING jsonb_array_length(suspects -> {suspect}) AS marks
        """
    ).bindparams(*_TERM, *_STAND, bindparam("suspect", type_=BigInteger))


def absolve(tables: Tables, *, ranges: bool = False) -> TextClause:
    """The attempts of the events :positions have ended, and none crashed the process."""
    table, which = _row(tables, ranges=ranges)
    return text(
        f"""
        UPDATE {table} SET suspects = suspects - CAST(:positions AS text[])
        WHERE {which} AND lease_token = :token
        """
    ).bindparams(*_TERM, bindparam("positions", type_=ARRAY(BigInteger)))


def lived(tables: Tables, *, ranges: bool = False) -> TextClause:
    """The holder of the term :token was alive: retract what was counted against that term.

    At most one crash, and at most one per event. Whoever holds the row now, and however often this
    runs: other terms are not touched, and nothing can be retracted twice.
    """
    table, which = _row(tables, ranges=ranges)
    return text(
        f"""
        UPDATE {table} SET
            crashes = greatest(0, crashes - CASE WHEN :token = ANY (crashed_terms) THEN 1 ELSE 0
                                            END),
            crashed_terms = array_remove(crashed_terms, :token),
            suspects = coalesce(
                (SELECT jsonb_object_agg(position, terms - CAST(:token AS text))
                 FROM jsonb_each(suspects) AS marked (position, terms)), '{{}}')
        WHERE {which} AND (:token = ANY (crashed_terms) OR EXISTS (
            SELECT FROM jsonb_each(suspects) AS marked (position, terms)
            WHERE terms @> to_jsonb(CAST(:token AS text))))
        """
    ).bindparams(*_TERM)


def forget(tables: Tables) -> TextClause:
    """Everything that was in flight when a holder died has been attempted since. One row if the
    term :token is still valid.

    Counts against an event that could not be attempted, because it waits behind another one of its
    key, are kept: it has a row, and its turn will come.
    """
    table, which = _row(tables, ranges=False)
    return text(
        f"""
        UPDATE {table} SET crashes = 0, crashed_terms = '{{}}', suspects = coalesce(
            (SELECT jsonb_object_agg(marked.position, marked.terms)
             FROM jsonb_each(suspects) AS marked (position, terms)
             JOIN {quoted(tables.deliveries)} AS d
               ON d.listener = :name AND d.position = CAST(marked.position AS bigint)
             WHERE marked.terms <> '[]'), '{{}}')
        WHERE {which} AND lease_token = :token RETURNING name
        """
    ).bindparams(*_TERM)


def clock() -> TextClause:
    """The database's clock, in seconds since 1970."""
    return text(f"SELECT CAST(extract(epoch FROM {SERVER_NOW}) AS float8)")
