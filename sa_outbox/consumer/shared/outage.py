"""One place that works with the database, while the database is away: report it, wait, report that
it is back."""

from __future__ import annotations

from random import uniform
from typing import TYPE_CHECKING

from sa_outbox.observe import DatabaseAway, DatabaseBack
from sa_outbox.policy.backoff import MAX_PAUSE_SECONDS, Backoff

if TYPE_CHECKING:
    from collections.abc import Callable

    from sa_outbox.observe import Observation, Place


class Outage:
    def __init__(
        self,
        where: Place,
        emit: Callable[[Observation], None],
        *,
        max_seconds: float = MAX_PAUSE_SECONDS,
    ) -> None:
        self._where = where
        self._emit = emit
        self._backoff = Backoff(max_seconds=max_seconds)
        self.is_away: bool = False
        """It did not answer when it was last asked."""

    def goes_on(self, error: Exception) -> float:
        """The database is away, or still is. Returns how long to wait: processes that lose their
        server at the same moment should not all come back at the same moment."""
        pause = self._backoff.next()
        self.is_away = True
        self._emit(DatabaseAway(self._where, type(error).__name__, pause))
        return pause * uniform(0.5, 1.0)  # noqa: S311 - no secret

    def ends(self) -> None:
        """The database was away, and has answered."""
        self.is_away = False
        self._backoff.reset()
        self._emit(DatabaseBack(self._where))
