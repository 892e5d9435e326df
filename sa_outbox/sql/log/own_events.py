"""The events of the transaction that asks, and emptying the tables: for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import delete

from ..server.names import log_name
from ..server.timed_text import text
from .matching import filters, met
from .reads import columns

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlalchemy import Delete, TextClause

    from ...database.tables import Tables


def read_own(tables: Tables, payload_filters: Sequence[str]) -> TextClause:
    """The columns of ``event/row.py`` for the events that this transaction has written, those of
    its released savepoints included, oldest first; and ``met``: those of *payload_filters* that an
    event meets.

    A row is its own if whoever wrote it is still in progress: others in progress can't be seen. A
    transaction's number is lower than those of its savepoints, so older rows are not asked about.
    Takes no locks. Reads the whole log: for a test's database.
    """
    return text(
        f"""
        SELECT {columns()}, true AS matches, {met("o.payload")} AS met FROM {log_name(tables)} AS o
        CROSS JOIN (SELECT CAST(CAST(pg_current_xact_id() AS text) AS bigint) AS number) AS own
        CROSS JOIN LATERAL (
            SELECT (own.number >> 32 << 32) + CAST(CAST(o.xmin AS text) AS bigint) AS number
        ) AS writer
        WHERE CASE WHEN writer.number >= own.number THEN
            pg_xact_status(CAST(CAST(writer.number AS text) AS xid8)) = 'in progress' END
        ORDER BY o.id
        """
    ).bindparams(filters(payload_filters))


def empty(tables: Tables) -> Iterator[Delete]:
    """Delete every row of every table but ``meta``, which says what the tables are. Not the
    sequence: no id is drawn twice."""
    for table in reversed(tables.metadata.sorted_tables):
        if table is not tables.meta:
            yield delete(table)
