"""So many in such a time: the arithmetic of rate limits, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from .errors import ConfigError

_MARGIN = 1e-6
"""Below what a float can't tell from nothing over a day."""


@dataclass(frozen=True, slots=True)
class Rate:
    """At most *events* in any span *per*: ``Rate(100, per=timedelta(minutes=1))``.

    Counted by each process for itself, as everything that a listener limits.
    """

    events: int
    per: timedelta = timedelta(seconds=1)

    def __post_init__(self) -> None:
        if type(self.events) is not int or self.events < 1:
            raise ConfigError(f"a rate needs a whole number of events, 1 or more: {self.events!r}")
        day = timedelta(days=1)
        if not isinstance(self.per, timedelta) or not timedelta(0) < self.per <= day:
            raise ConfigError(f"a rate is per timedelta above zero and up to a day: {self.per!r}")


class Bucket:
    """Holds as many as may begin now, and fills up as time passes.

    Half of the events may begin at once, and what refills within a span is one more than the other
    half. One short of full at the end of a span, that is the rate: no span sees more of them,
    wherever it begins.
    """

    def __init__(self, rate: Rate, now: float) -> None:
        self._most = float(max(1, rate.events // 2))
        refill = (rate.events + 1 - self._most) * (1 - _MARGIN)
        self._per_second = refill / rate.per.total_seconds()
        self._left = self._most
        self._at = now

    def wait(self, now: float) -> float:
        """Seconds until the next one may begin; 0: now."""
        self._left = min(self._most, self._left + max(0.0, now - self._at) * self._per_second)
        self._at = max(self._at, now)
        return 0.0 if self._left >= 1 else (1 - self._left) / self._per_second + 1e-9

    def take(self) -> None:
        """One begins."""
        self._left -= 1
