"""How long the statements of one transaction may take."""

from __future__ import annotations

from sqlalchemy import Select, Text, bindparam, cast, func, select, true
from sqlalchemy.types import Float


def patience() -> Select[tuple[str]]:
    """End each later statement of this transaction after ``seconds``.

    For queries with an operator's own filters: one whose answer nobody waits for must not keep
    reading. Touches no table.
    """
    milliseconds = cast(func.round(bindparam("seconds", type_=Float) * 1000), Text)
    return select(func.set_config("statement_timeout", milliseconds, true()))
