"""What a process remembers of a queue between two claims: one object, so that it goes as one. Pure.

Invariant: nothing is claimed or passed from memory but by a statement that compares the revision of
the queue's row, and each write of that row draws a new one at random. So it succeeds only on the
row that is remembered, even if the server has lost that write, and others came instead. What was
read of the log is not compared: it is dropped with all of this when a connection ends, and
``Steady`` asks nothing for a read that is older than that.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any

from ..position.progress import Progress
from ..settle.buffer import SKIP_SAVE_SECONDS

if TYPE_CHECKING:
    from .selection import ClaimedRange, Selection

STATE_CACHE_SECONDS = 0.05
"""Seconds for which the state of the queue is not read again while one range after the other is
claimed. An urgent event, a due one or an abandoned range is found that much later."""


@dataclass(slots=True)
class Remembered:
    token: int = 0
    """Of the queue's row: an operator has not moved it since."""
    read_snapshot: int = 0
    """Everything visible at that snapshot is claimed."""
    state: dict[str, Any] | None = None
    """The queue's row, and what is due."""
    asked_at: float = 0.0
    rests_at: Progress | None = None
    """Up to there everything was claimed, of whatever type, and nothing can still appear."""
    passed: Selection | None = None
    """What was read last is all of other types, and the cursor was not saved after it."""
    pass_at: float = inf
    """When it is to be saved."""

    @property
    def has_state(self) -> bool:
        return self.state is not None and monotonic() < self.asked_at + STATE_CACHE_SECONDS

    def note(self, selection: Selection, taken: ClaimedRange) -> None:
        """We have claimed it: until somebody else does, the queue is as we left it."""
        if self.state is not None:
            self.state |= selection.moved | {"revision": taken.moved_to}

    def rest(self, selection: Selection, revision: int) -> None:
        """Nothing was left by *selection*, and the row has that *revision* since."""
        self.rests_at = Progress(selection.moved["position"], revision=revision)

    def pass_later(self, selection: Selection | None) -> None:
        """The cursor is to be moved over *selection* soon; None: it is where it should be."""
        self.passed = selection
        if selection is None:
            self.pass_at = inf
        elif self.pass_at == inf:
            self.pass_at = monotonic() + SKIP_SAVE_SECONDS
