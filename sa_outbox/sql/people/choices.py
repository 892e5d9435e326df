"""What there is to filter by: the values in the newest rows of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import bindparam
from sqlalchemy.types import Integer

from ..server.names import quoted
from ..server.timed_text import text

if TYPE_CHECKING:
    from sqlalchemy import Table, TextClause


def values_of(table: Table, column: str) -> TextClause:
    """Up to :most values that *column* has in the newest :examined rows of *table*, sorted. Takes
    no locks. The primary key backwards."""
    return text(
        f"""
        SELECT DISTINCT few.value FROM (
            SELECT {column} AS value FROM {quoted(table)} ORDER BY id DESC LIMIT :examined
        ) AS few WHERE few.value IS NOT NULL ORDER BY few.value LIMIT :most
        """
    ).bindparams(bindparam("examined", type_=Integer), bindparam("most", type_=Integer))
