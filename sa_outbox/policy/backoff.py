"""How long to wait between attempts: twice as long each time, up to a limit."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

RELAY_PAUSE: Final = timedelta(seconds=5)
"""Longest pause before a relay whose receiver is away is tried again, unless it has its own."""


class Backoff:
    def __init__(self, first_seconds: float = 0.1, max_seconds: float = 5.0) -> None:
        self._first = min(first_seconds, max_seconds)
        self._max = max_seconds
        self._pause = self._first
        self.has_begun: bool = False
        """It has waited since the last success."""

    def next(self) -> float:
        """Seconds to wait now."""
        self.has_begun = True
        pause, self._pause = self._pause, min(2 * self._pause, self._max)
        return pause

    def reset(self) -> None:
        """After a success."""
        self._pause, self.has_begun = self._first, False
