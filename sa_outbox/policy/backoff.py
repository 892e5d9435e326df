"""How long to wait between attempts: twice as long each time, up to a limit."""

from __future__ import annotations


class Backoff:
    def __init__(self, first_seconds: float = 0.1, max_seconds: float = 5.0) -> None:
        self._first = min(first_seconds, max_seconds)
        self._max = max_seconds
        self._pause = self._first

    def next(self) -> float:
        """Seconds to wait now."""
        pause, self._pause = self._pause, min(2 * self._pause, self._max)
        return pause

    def reset(self) -> None:
        self._pause = self._first
