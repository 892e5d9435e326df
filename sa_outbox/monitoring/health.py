"""Is it alive, is it ready? The answers differ while the database is unreachable.

Not alive means that only a new process would help: the event loop is stuck. An unreachable database
does not count: all processes would be killed for it, again and again, and be of no use when it is
back. Ready means that it is doing its work now.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Final

from sa_outbox.observe import (
    ConsumerAsleep,
    ConsumerStarted,
    ConsumerStopped,
    ConsumerStopping,
    DatabaseAway,
    DatabaseBack,
    LeasesKept,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from sa_outbox.observe import Observation, Place, PlaceKind
    from sa_outbox.settings import ConsumerSettings

NEEDED: Final[tuple[PlaceKind, ...]] = ("horizon", "leases")
"""The places whose outage stops the work. Without LISTEN it continues by polling; if a handler's
own statements fail, that need not affect others."""
OUTAGE_SECONDS = 10.0
"""Seconds, longer than the pause between two attempts. An outage that is not reported again is
over: a consumer that lost every lease during it no longer reads the horizon, and reports no end."""


@dataclass(frozen=True, slots=True)
class Answer:
    """*reasons* is empty when all is well. They reveal nothing about the database or the data."""

    reasons: tuple[str, ...] = ()

    @property
    def is_good(self) -> bool:
        return not self.reasons


class Health:
    """An observer that answers both. Any thread may ask."""

    wants_batches = True

    def __init__(self, settings: ConsumerSettings, *, now: Callable[[], float] = monotonic) -> None:
        self._now = now
        self._silence = settings.blocked_after.total_seconds()
        self._lease = settings.lease_duration.total_seconds()
        self._patience = settings.probe_timeout.total_seconds()
        self._turned_at: float | None = None
        self._kept_at: float | None = None
        self._away: dict[Place, tuple[float, float]] = {}
        """Place to when the outage began and when it was last reported."""
        self._stale = settings.statement_timeout.total_seconds() + OUTAGE_SECONDS
        self._state = "it has not started yet"

    def __call__(self, observation: Observation) -> None:
        match observation:
            case ConsumerStarted():
                self._state, self._kept_at = "", self._now()
                self._away.clear()
            case ConsumerAsleep():
                self._state, self._kept_at = "", None  # it does what there is to do
            case ConsumerStopping():
                self._state = "it is stopping"
            case ConsumerStopped():
                self._state = "it has stopped"
            case DatabaseAway(where) if where.kind in NEEDED:
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
        """True while it works: started (which verifies the schema) and not stopping, with a
        database that answers, or has been unreachable for less than ``probe_timeout``, and with
        leases renewed within ``lease_duration``."""
        reasons = list(self.alive().reasons)
        if self._state:
            return Answer((*reasons, self._state))
        now = self._now()
        places = tuple(self._away.values())
        away = [now - since for since, seen_at in places if now - seen_at <= self._stale]
        if away and max(away) > self._patience:
            reasons.append(f"the database has been away for {max(away):.0f} s")
        if self._kept_at is not None and now - self._kept_at > self._lease:
            reasons.append(f"no lease was renewed for {now - self._kept_at:.0f} s")
        return Answer(tuple(reasons))
