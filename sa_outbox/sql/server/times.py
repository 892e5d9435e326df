"""The time of a statement, and intervals to times that may be infinite.

``NOW`` is the only time in these statements: a bind, so that a test can move it (``clock.py``).
None, the default, is the server's clock when the expression is evaluated: ``now()`` would be frozen
for the whole transaction. Not moved are

- columns that are written by their default, such as ``created_at``: they record when a row was
  really written;
- ``SERVER_NOW``, for what is compared with such a record or with a time of the server's own: how
  long a transaction has been open, how far the server's clock is from ours.

Only text, and no SQLAlchemy: ``sa-outbox status`` has none.
"""

from __future__ import annotations

from typing import Final

from ...clock import clock

SERVER_NOW: Final = "clock_timestamp()"
NOW: Final = f"coalesce(CAST(:now AS timestamptz), {SERVER_NOW})"
"""For ``timed_text.text``. The planner drops a NULL: the plan is that of the function alone."""


def literal_now() -> str:
    """``NOW`` for statements that can have no binds, such as a DO block: the time at which the
    statement is built."""
    moved_to = clock.now()
    return SERVER_NOW if moved_to is None else f"CAST('{moved_to.isoformat()}' AS timestamptz)"


def seconds_until(time: str) -> str:
    """SQL for the seconds until *time*; infinite if that is. Up to PostgreSQL 16 nothing can be
    subtracted from infinity, and one event would fail the statement for all."""
    return (
        f"CAST(CASE WHEN isfinite({time}) THEN extract(epoch FROM {time} - {NOW})"
        f" ELSE extract(epoch FROM {time}) END AS float8)"
    )


def since(time: str, *, now: str = NOW) -> str:
    """SQL for the interval since *time*; none if that is infinite."""
    return f"CASE WHEN isfinite({time}) THEN {now} - {time} END"
