"""How many events a range of a queue has, and how many ranges a process holds. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sa_outbox.declare.listener import Listener

TARGET_RANGE_SECONDS = 1.0
"""Seconds that a range should last."""
MAX_CONCURRENT_RANGES = 8
USUAL, AT_SPEED = 500, 2000
"""Events in a range if the handlers are so fast that this is a fraction of a second's work, and
have no session, no batches and no limits. A listener with a smaller ``batch_size`` than the default
wants small ranges."""


class Pace:
    """How many events a range has, and how many ranges there are. Pure."""

    def __init__(self, listener: Listener) -> None:
        call = listener.call
        self._least = min(listener.concurrency, listener.batch_size)
        self._full = self._most = listener.batch_size
        is_plain = call.session == "none" and not call.batch and not listener.is_limited
        if is_plain and self._most >= USUAL:
            self._most = max(self._most, AT_SPEED)
        # With a session, each event is settled by itself, one after the other within a range.
        side_by_side = min(listener.concurrency, MAX_CONCURRENT_RANGES)
        self._usual_ranges = 2 if call.session == "none" else max(2, side_by_side)
        # A handler that takes batches wants whole ones.
        first = self._full if call.batch else 4 * listener.concurrency
        self.size: int = min(first, self._full)
        self.ranges: int = self._usual_ranges
        """How many this process may hold. At speed one more: the next is read meanwhile."""

    def ended(self, events: int, seconds: float) -> None:
        """A range of *events* events took *seconds*."""
        if seconds > 2 * TARGET_RANGE_SECONDS:
            self.size = max(self._least, self.size // 2)
        elif seconds < TARGET_RANGE_SECONDS / 2 and 2 * events >= self.size:
            factor = 4 if seconds < TARGET_RANGE_SECONDS / 8 else 2
            self.size = max(self.size, min(self._most, factor * events))
        self.ranges = self._usual_ranges + (self.size > self._full)
