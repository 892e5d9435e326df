"""The present, as statements and decisions see it: the database's clock, unless a test moves it.

Every statement that decides or computes something by time takes the present as the bind ``now``
(``sql/server/times.py``), which is read from here when it is run. None means the server's clock, so
processes whose clocks differ agree. A test that moves the clock reaches all of it at once: what is
due, leases, crons, retention, the inbox::

    clock.advance(days=3)

There is one per process, as there is one clock per server: a producer, a consumer and an operator
who disagreed about the time would not describe one system. Not moved are timeouts, polls and rate
limits, which measure how long something takes; and columns that are written by their default, such
as ``created_at``, which record when a row was really written.
"""

from __future__ import annotations

from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_NOT_MOVED = timedelta(0)


class Clock:
    """Runs on from wherever it was moved to."""

    def __init__(self) -> None:
        self.ahead = _NOT_MOVED
        """How far it was moved."""
        self.seconds_ahead = 0.0
        """To be added where Python waits until something is due."""
        self._watchers: list[Callable[[], object]] = []
        self.moves = 0
        """How often it was moved."""

    def now(self) -> datetime | None:
        """The value of the bind ``now``; None: it was not moved, the server's clock counts."""
        return datetime.now(UTC) + self.ahead if self.ahead else None

    def current(self) -> datetime:
        """For what is decided in Python: by the local clock, if this one was not moved."""
        return datetime.now(UTC) + self.ahead

    def advance(self, **units: float) -> None:
        """Move on by a ``timedelta(**units)``, and wake what waits for a time.

        A consumer renews its leases then, as it would have done meanwhile. What is just being
        written is not moved with it, so let it settle first: ``await consumer.drain(...)``.
        """
        self._move(self.ahead + timedelta(**units))

    def move_to(self, moment: datetime) -> None:
        """Move to *moment*, which has a time zone."""
        self._move(moment - datetime.now(UTC))

    def reset(self) -> None:
        """Back to the server's clock."""
        self._move(_NOT_MOVED)

    @contextmanager
    def watched(self, moved: Callable[[], object]) -> Iterator[None]:
        """Call *moved* after each move, in the thread of whoever moves."""
        self._watchers.append(moved)
        try:
            yield
        finally:
            self._watchers.remove(moved)

    def _move(self, ahead: timedelta) -> None:
        self.ahead, self.seconds_ahead = ahead, ahead.total_seconds()
        self.moves += 1
        for moved in tuple(self._watchers):
            moved()


clock = Clock()
