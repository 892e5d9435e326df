"""``text`` for statements, with their time bound."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from ...clock import clock
from .times import NOW

if TYPE_CHECKING:
    from datetime import datetime

_NOW: sa.BindParameter[datetime | None] = sa.bindparam("now", callable_=clock.now)


def text(sql: str) -> sa.TextClause:
    """SQLAlchemy's ``text``. If *sql* contains ``NOW``, that is read from the clock whenever the
    statement is run, unless the caller passes a value for ``now``."""
    made = sa.text(sql)
    return made.bindparams(_NOW) if NOW in sql else made


def now_or(written_at: sa.ColumnElement[datetime]) -> sa.ColumnElement[datetime]:
    """``NOW`` in an ON CONFLICT. *written_at* is a default of the row that was not inserted: it
    takes the place of the server's clock, as one moment for the whole statement."""
    return sa.func.coalesce(sa.cast(_NOW, sa.DateTime(timezone=True)), written_at)
