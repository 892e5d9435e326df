"""Is it alive, is it ready? Two questions with different answers while the database is away.

Alive is what only a new process would mend: an event loop that turns. A database that is away is
not among it; all processes would be killed for it, again and again, and be no help when it is back.
Ready is: it does its work now.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING

from sa_outbox.observe import (
    ConsumerStarted,
    ConsumerStopped,
    ConsumerStopping,
    DatabaseAway,
    DatabaseBack,
    LeasesKept,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from sa_outbox.observe import Observation
    from sa_outbox.settings import ConsumerSettings

NEEDED = ("horizon", "leases")
"""Places whose outage stops the work. Without LISTEN it goes on by polling; that a handler's own
statements fail is not known to be everybody's trouble."""
PAUSES = 10.0
"""Seconds, more than between two attempts. An outage that is not told of again is over: who has
lost every lease in it does not look at the horizon any more, and tells of no end."""


@dataclass(frozen=True, slots=True)
class Answer:
    """*reasons* is empty when all is well. They name nothing of the database or of the data."""

    reasons: tuple[str, ...] = ()

    @property
    def is_good(self) -> bool:
        return not self.reasons


class Health:
    """An observer that can say both. The answers may be asked for by any thread."""

    def __init__(self, settings: ConsumerSettings, *, now: Callable[[], float] = monotonic) -> None:
        self._now = now
        self._silence = settings.blocked_after.total_seconds()
        self._lease = settings.lease_duration.total_seconds()
        self._patience = settings.probe_timeout.total_seconds()
        self._turned_at: float | None = None
        self._kept_at: float | None = None
        self._away: dict[str, tuple[float, float]] = {}
        """Where, to when it began and when it was told of last."""
        self._stale = settings.statement_timeout.total_seconds() + PAUSES
        self._state = "it has not started yet"

    def __call__(self, observation: Observation) -> None:
        match observation:
            case ConsumerStarted():
                self._state, self._kept_at = "", self._now()
                self._away.clear()
            case ConsumerStopping():
                self._state = "it is stopping"
            case ConsumerStopped():
                self._state = "it has stopped"
            case DatabaseAway(where) if where in NEEDED:
                now = self._now()
                self._away[where] = self._away.get(where, (now, now))[0], now
            case DatabaseBack(where):
                self._away.pop(where, None)
            case LeasesKept():
                self._kept_at = self._now()
            case _:
                pass

    def turned(self) -> None:
        """The event loop has turned: called in it, often."""
        self._turned_at = self._now()

    def alive(self) -> Answer:
        """Bad when the event loop has not turned for ``blocked_after``."""
        if self._turned_at is not None:
            silent = self._now() - self._turned_at
            if silent > self._silence:
                return Answer((f"the event loop has not turned for {silent:.0f} s",))
        return Answer()

    def ready(self) -> Answer:
        """Good while it works: started (which verifies the schema) and not stopping, with a
        database that answers, or has been away for less than ``probe_timeout``, and leases renewed
        within ``lease_duration``."""
        reasons = list(self.alive().reasons)
        if self._state:
            return Answer((*reasons, self._state))
        now = self._now()
        places = tuple(self._away.values())
        away = [now - since for since, told_at in places if now - told_at <= self._stale]
        if away and max(away) > self._patience:
            reasons.append(f"the database has been away for {max(away):.0f} s")
        if self._kept_at is not None and now - self._kept_at > self._lease:
            reasons.append(f"no lease was renewed for {now - self._kept_at:.0f} s")
        return Answer(tuple(reasons))
