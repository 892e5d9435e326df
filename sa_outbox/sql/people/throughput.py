"""How many of their events listeners have passed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import bindparam
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.types import BigInteger, Text

from ..server.names import log_name, quoted
from ..server.timed_text import text
from .overview import MATCHES, MAX_COUNTED, WANTS

if TYPE_CHECKING:
    from sqlalchemy import TextClause

    from ...database.tables import Tables


def passed(tables: Tables) -> TextClause:
    """For each of the listeners :names whose cursor went from one of :lows to one of :highs: name;
    ids, from the one to the other; looked_at, the events of any type among the first of them, up to
    1000; and own, those of these that it gets.

    Takes no locks. Rows of the log by its primary key.
    """
    return text(
        f"""
        SELECT l.name, given.high - given.low AS ids, few.looked_at, few.own
        FROM unnest(:names, :lows, :highs) AS given (name, low, high)
        JOIN {quoted(tables.listeners)} AS l ON l.name = given.name AND l.partition = 0
        CROSS JOIN LATERAL ({WANTS}) AS wants
        CROSS JOIN LATERAL (
            SELECT count(*) AS looked_at, count(*) FILTER (WHERE first.matches) AS own
            FROM (
                SELECT {MATCHES} AS matches FROM {log_name(tables)} AS o
                WHERE o.id > given.low AND o.id <= given.high ORDER BY o.id LIMIT {MAX_COUNTED:d}
            ) AS first
        ) AS few
        """
    ).bindparams(
        bindparam("names", type_=ARRAY(Text)),
        bindparam("lows", type_=ARRAY(BigInteger)),
        bindparam("highs", type_=ARRAY(BigInteger)),
    )
