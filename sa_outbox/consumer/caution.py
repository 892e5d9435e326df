"""How careful to be after a crash. Pure.

A lease that expired means that its holder died: perhaps of an event, more often of a deploy, a node
or too little memory. So the first crash makes the window narrow: few events are in flight, and a
second death leaves few suspects. Only then each of these is attempted alone, with nothing else in
flight in the process, and counted before its handler runs: one that takes the process with it
again and again is convicted, and no innocent one is. A listener with slow handlers is not brought
to a crawl by every ``kill -9``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sa_outbox.listener import Listener

NARROW = 16
"""Events in flight after a crash; more only if the listener has more concurrency."""


class Caution:
    """*crashes*: how often in a row a holder of the listener died."""

    def __init__(self, crashes: int, listener: Listener) -> None:
        self._size = listener.batch_size
        self._narrow = min(max(NARROW, listener.concurrency), listener.batch_size)
        self._alone_for = self._narrow if crashes > 1 else 0
        # Whatever was in flight is among the next events that are not settled: one batch that was
        # being handled, and one that was handled and not written yet. Handlers of batches have up
        # to two of them in hand, and one that was read for the next.
        batches = 4 if listener.call.batch else 2
        self._narrow_for = batches * self._size if crashes else 0
        self.is_over = False
        """Everything that was in flight has been settled: the crashes can be forgotten."""

    @property
    def is_on(self) -> bool:
        return self._narrow_for > 0

    @property
    def alone(self) -> bool:
        return self._alone_for > 0

    @property
    def window(self) -> int:
        """Most events that may be read and not settled."""
        if self._alone_for:
            return 1
        return self._narrow if self._narrow_for else self._size

    def covers(self, events: int) -> None:
        """Of a range: all of them may have been in flight."""
        if self._narrow_for:
            self._narrow_for = max(self._narrow_for, events)

    def settled(self, events: int) -> None:
        if self._narrow_for:
            self._alone_for = max(0, self._alone_for - events)
            self._narrow_for = max(0, self._narrow_for - events)
            self.is_over = not self._narrow_for

    def caught_up(self) -> None:
        """Nothing is left that could have been in flight."""
        if self._narrow_for:
            self._alone_for = self._narrow_for = 0
            self.is_over = True
