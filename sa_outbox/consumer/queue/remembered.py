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

    def has_state(self, now: float) -> bool:
        return self.state is not None and now < self.asked_at + STATE_CACHE_SECONDS

    def claimed(
        self, selection: Selection, taken: ClaimedRange | None, *, now: float, is_behind: bool
    ) -> None:
        """The claim of *selection* was answered with *taken*; None: nothing was to be claimed, or
        another process was faster. *is_behind*: more is waiting than *selection* has."""
        self.rests_at = None
        if selection.only_passes:
            self.pass_later(selection, now)
        else:
            self.pass_nothing()
        if taken is None or selection.later:  # what was set aside may be due
            self.state = None
        else:
            self.note(selection, taken)
        if is_behind or (selection.now and taken is None):
            return
        # The snapshot that the read followed: the latest one may have been forgotten since.
        self.read_snapshot = max(self.read_snapshot, selection.snapshot.number)
        # Not if it was only passed over: whether that was written was not checked.
        if not selection.gaps.lows and not selection.is_passed_over:
            self.rest(selection, taken.moved_to if taken else selection.moved["revision"])

    def note(self, selection: Selection, taken: ClaimedRange) -> None:
        """We have claimed it: until somebody else does, the queue is as we left it."""
        if self.state is not None:
            self.state |= selection.moved | {"revision": taken.moved_to}

    def rest(self, selection: Selection, revision: int) -> None:
        """Nothing was left by *selection*, and the row has that *revision* since."""
        self.rests_at = Progress(selection.moved["position"], revision=revision)

    def pass_later(self, selection: Selection, now: float) -> None:
        """The cursor is to be moved over *selection* soon."""
        self.passed = selection
        if self.pass_at == inf:
            self.pass_at = now + SKIP_SAVE_SECONDS

    def pass_nothing(self) -> None:
        """The cursor is where it should be."""
        self.passed, self.pass_at = None, inf
