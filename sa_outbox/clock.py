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
    """Runs on from wherever it was moved to, unless it is frozen."""

    def __init__(self) -> None:
        self._ahead = _NOT_MOVED
        self._frozen_at: datetime | None = None
        self._watchers: list[Callable[[], object]] = []
        self.is_moved: bool = False
        """Whether it shows another time than the server's, or stands still. Read for each
        statement."""
        self.moves: int = 0
        """How often it was moved."""

    @property
    def ahead(self) -> timedelta:
        """How far it is from the real time."""
        return self._ahead if self._frozen_at is None else self._frozen_at - datetime.now(UTC)

    @property
    def seconds_ahead(self) -> float:
        """To be added where Python waits until something is due."""
        return self.ahead.total_seconds()

    def now(self) -> datetime | None:
        """The value of the bind ``now``; None: it was not moved, the server's clock counts."""
        if self._frozen_at is not None:
            return self._frozen_at
        return datetime.now(UTC) + self._ahead if self._ahead else None

    def current(self) -> datetime:
        """For what is decided in Python: by the local clock, if this one was not moved."""
        return self.now() or datetime.now(UTC)

    def advance(self, **units: float) -> None:
        """Move on by a ``timedelta(**units)``, and wake what waits for a time.

        A consumer renews its leases then, as it would have done meanwhile. What is just being
        written is not moved with it, so let it settle first: ``await consumer.drain(...)``.
        """
        step = timedelta(**units)
        if self._frozen_at is not None:
            self._move(_NOT_MOVED, frozen_at=self._frozen_at + step)
        else:
            self._move(self._ahead + step)

    def move_to(self, moment: datetime) -> None:
        """Move to *moment*, which has a time zone. A frozen clock stays frozen, at *moment*."""
        ahead = moment - datetime.now(UTC)
        if self._frozen_at is not None:
            self._move(_NOT_MOVED, frozen_at=moment)
        else:
            self._move(ahead)

    def freeze(self, moment: datetime | None = None) -> datetime:
        """Stand still, at *moment* or now, until it is moved or reset; return the moment."""
        frozen_at = self.current() if moment is None else moment
        _ = frozen_at - datetime.now(UTC)  # raises TypeError for one without a time zone
        self._move(_NOT_MOVED, frozen_at=frozen_at)
        return frozen_at

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        """Frozen during the block; then it runs on from where it stood, if it ran before."""
        if self._frozen_at is not None:
            yield
            return
        ahead, since = self._ahead, self.freeze()
        try:
            yield
        finally:
            if self._frozen_at is not None:  # not reset meanwhile, but perhaps moved
                self._move(ahead + (self._frozen_at - since))

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

    def _move(self, ahead: timedelta, *, frozen_at: datetime | None = None) -> None:
        self._ahead, self._frozen_at = ahead, frozen_at
        self.is_moved = bool(ahead) or frozen_at is not None
        self.moves += 1
        for moved in tuple(self._watchers):
            moved()


clock: Clock = Clock()
