"""What caused an event, and what it caused, for people. Only the former has an index."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import bindparam
from sqlalchemy.types import BigInteger, Integer, Text, Uuid

from ..server.names import log_name
from ..server.timed_text import text

if TYPE_CHECKING:
    from sqlalchemy import TextClause

    from ...database.tables import Tables

_COLUMNS = (
    "o.id AS position, o.event_id, o.event_type, o.created_at,"
    " o.headers ->> 'causation_id' AS cause, o.headers ->> 'causation_tree' AS tree"
)


def one(tables: Tables) -> TextClause:
    """The event :event_id: position, event_id, event_type, created_at, cause, tree. No row if it is
    no longer in the log. The index on event_id."""
    return text(
        f"SELECT {_COLUMNS} FROM {log_name(tables)} AS o WHERE o.event_id = :event_id LIMIT 1"
    ).bindparams(bindparam("event_id", type_=Uuid))


def of_tree(tables: Tables) -> TextClause:
    """Up to :limit events of the tree :tree (the beginning of the header that names it) among the
    :examined ids above :position, oldest first: columns as ``one``. Takes no locks. A range of the
    primary key."""
    return text(
        f"""
        SELECT {_COLUMNS} FROM {log_name(tables)} AS o
        WHERE o.id > :position AND o.id <= CAST(:position AS bigint) + :examined
          AND starts_with(o.headers ->> 'causation_tree', :tree)
        ORDER BY o.id LIMIT :limit
        """
    ).bindparams(
        bindparam("position", type_=BigInteger),
        bindparam("examined", type_=Integer),
        bindparam("tree", type_=Text),
        bindparam("limit", type_=Integer),
    )
