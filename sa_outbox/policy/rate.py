"""The arithmetic of rate limits."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from ..errors import ConfigError
from .checks import ONE_DAY, check_span

_MARGIN = 1e-6
"""Smaller than what a float can distinguish from zero over a day."""


@dataclass(frozen=True, slots=True)
class Rate:
    """At most *events* in any span *per*: ``Rate(100, per=timedelta(minutes=1))``.

    Each process counts for itself, as with every limit of a listener.
    """

    events: int
    per: timedelta = timedelta(seconds=1)

    def __post_init__(self) -> None:
        if type(self.events) is not int or self.events < 1:
            raise ConfigError(f"a rate needs a whole number of events, 1 or more: {self.events!r}")
        check_span("per of a rate", self.per, most=ONE_DAY)


class Bucket:
    """Holds how many events may start now, and refills as time passes.

    Half of the events may start at once, and one more than the other half refills within a span.
    One below full at the end of a span, that adds up to the rate: no span sees more, wherever it
    begins.
    """

    def __init__(self, rate: Rate, now: float) -> None:
        self._most = float(max(1, rate.events // 2))
        refill = (rate.events + 1 - self._most) * (1 - _MARGIN)
        self._per_second = refill / rate.per.total_seconds()
        self._left = self._most
        self._at = now

    def wait(self, now: float) -> float:
        """Seconds until the next event may start; 0: now."""
        self._left = min(self._most, self._left + max(0.0, now - self._at) * self._per_second)
        self._at = max(self._at, now)
        return 0.0 if self._left >= 1 else (1 - self._left) / self._per_second + 1e-9

    def take(self) -> None:
        """Count an event that starts."""
        self._left -= 1
