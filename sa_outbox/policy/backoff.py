"""How long to wait between attempts: twice as long each time, up to a limit."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

FIRST_PAUSE_SECONDS: Final = 0.1
MAX_PAUSE_SECONDS: Final = 5.0
"""Pauses while a database is away, and anything else that has no pauses of its own."""
RELAY_PAUSE: Final = timedelta(seconds=5)
"""Longest pause before a relay whose receiver is away is tried again, unless it has its own."""
_MAX_DOUBLINGS: Final = 64
"""More than any limit needs. After a thousand, the factor would not fit into a float."""


def pause_after(
    tries: int,
    first_seconds: float = FIRST_PAUSE_SECONDS,
    max_seconds: float = MAX_PAUSE_SECONDS,
) -> float:
    """Seconds to wait when *tries* pauses in a row have been waited before."""
    return min(first_seconds * 2.0 ** min(tries, _MAX_DOUBLINGS), max_seconds)


class Backoff:
    def __init__(
        self, first_seconds: float = FIRST_PAUSE_SECONDS, max_seconds: float = MAX_PAUSE_SECONDS
    ) -> None:
        self._first = first_seconds
        self._max = max_seconds
        self._tries = 0

    def next(self) -> float:
        """Seconds to wait now."""
        self._tries += 1
        return pause_after(self._tries - 1, self._first, self._max)

    def reset(self) -> None:
        """After a success."""
        self._tries = 0
