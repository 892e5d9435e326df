"""React at once, but not too often: anyone who may connect can notify the channel."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Throttle:
    """Passes calls on: *burst* of them at once, and *per_second* in the long run.

    A call beyond that is not lost but delayed, and stands for all that come until then. So an
    occasional caller is served at once, whatever the limit.
    """

    def __init__(self, call: Callable[[], None], *, per_second: float, burst: float) -> None:
        self._call = call
        self._rate = per_second
        self._burst = burst
        self._left = burst
        self._reckoned_at = monotonic()
        self._owed: asyncio.TimerHandle | None = None

    def __call__(self) -> None:
        if self._owed is not None:
            return
        now = monotonic()
        earned = (now - self._reckoned_at) * self._rate
        self._left, self._reckoned_at = min(self._burst, self._left + earned), now
        if self._left >= 1:
            self._left -= 1
            self._call()
        else:
            pause = (1 - self._left) / self._rate
            self._owed = asyncio.get_running_loop().call_later(pause, self._pay)

    def close(self) -> None:
        """Drop what is still owed."""
        if self._owed is not None:
            self._owed.cancel()
            self._owed = None

    def _pay(self) -> None:
        self._owed = None
        self()
