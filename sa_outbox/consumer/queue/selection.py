"""Which events to claim, how many at once, where the queue's cursor is then, and what a claim led
to. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from sa_outbox.event.row import ID, PRIORITY, WAIT

from ..position.gaps import NO_GAPS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sa_outbox.declare.listener import Listener

    from ..lease.lease import Lease
    from ..position.gaps import Gaps
    from ..position.horizon import HorizonSnapshot
    from ..position.progress import Progress

PASSED_OVER = 10_000
"""Ids of events for others that were passed, after which the cursor is written at once."""
TARGET_RANGE_SECONDS = 1.0
"""Seconds that a range should last."""
MAX_CONCURRENT_RANGES = 8
LOCKED_RETRY_SECONDS = 0.1
"""Seconds until something that is free, but that somebody has locked, is tried again."""
MAX_GROWTH = 32
"""A range has at most this many times the events of the last: those may have been easy ones."""
USUAL, AT_SPEED = 500, 2000
"""Events in a range if the handlers are so fast that this is a fraction of a second's work, and
have no session, no batches and no limits. A listener with a smaller ``batch_size`` than the default
wants small ranges."""
FAST_SECONDS = 0.05
"""Handlers are fast that take less for a whole range. Slower ones gain nothing by ranges larger
than ``batch_size``, and one process would work on the last of these while others are idle."""


def leaving(position: int, gaps: Gaps, taken: Iterable[int]) -> tuple[int, Gaps]:
    """Cursor and gaps after *taken* were claimed and nothing else was. Pure."""
    ids = sorted(taken)
    left, highest = gaps.copy(), max(position, ids[-1])
    left.add(position + 1, highest)
    for each in ids:
        left.remove(each)
    return highest, left


def is_all_claimed(state: Mapping[str, Any], ceiling: int) -> bool:
    """Whether nothing up to that id can be claimed anymore, as the queue's *state* has it. Pure."""
    return bool(state["gaps"] == NO_GAPS and ceiling <= state["position"])


def is_for_later(row: Any) -> bool:
    """Scheduled, or of low priority: such a delivery gets a row."""
    return bool(row[PRIORITY] < 0 or (row[WAIT] is not None and row[WAIT] > 0))


def within(rows: Sequence[Any], most: int) -> tuple[list[Any], list[Any]]:
    """Those to claim, of which at most *most* are for now and any number for later; and the others.
    Pure."""
    now = [row for row in rows if not is_for_later(row)]
    if len(now) <= most:
        return list(rows), []
    return [row for row in rows if is_for_later(row)] + now[:most], now[most:]


def scheduled(row: Any, forever: float) -> dict[str, Any]:
    """The row of one that is for later, due in at most *forever* seconds. Pure."""
    delay = min(max(row[WAIT] or 0.0, 0.0), forever)
    return {"position": row[ID], "state": "scheduled", "delay": delay, "attempts": 0}


class Selection:
    """What to claim, and where the queue's cursor is then."""

    def __init__(
        self,
        old: Progress,
        rows: Sequence[Any],
        position: int,
        gaps: Gaps,
        snapshot: HorizonSnapshot,
        *,
        at_once: bool = False,
    ) -> None:
        """*at_once*: what was passed must not be read again, even if nothing is claimed."""
        self.snapshot = snapshot
        """The snapshot after which it was read."""
        # What is_for_later does, without a call for each event.
        self.later: list[Any] = [
            row for row in rows if row[PRIORITY] < 0 or (row[WAIT] is not None and row[WAIT] > 0)
        ]
        late = {row[ID] for row in self.later}
        self.now: Sequence[Any] = [row for row in rows if row[ID] not in late] if late else rows
        self.gaps = gaps
        passed = position - old.saved.position
        # Retention waits for a hole in the queue's row, even when nobody can fill it anymore.
        was_open = old.saved.gaps != NO_GAPS
        is_closed = was_open and gaps.up_to(old.saved.position).dump() != old.saved.gaps
        is_passed = bool(self.later) or passed >= PASSED_OVER or is_closed or at_once
        self.is_passed_over: bool = not self.now and is_passed
        """Nothing is claimed, and yet the cursor is written, at once."""
        stood = old.saved.position, old.saved.gaps
        self.moved: dict[str, Any] = {
            "revision": old.saved.revision,
            "position": position,
            "gaps": gaps.dump(),
        }
        moves = (position, self.moved["gaps"]) != stood
        self.only_passes: bool = moves and not rows and not self.is_passed_over
        """Nothing is to be handled, and the cursor could be written, soon."""


@dataclass(frozen=True, slots=True)
class ClaimedRange:
    lease: Lease
    rows: Sequence[Any] | None
    """None: they are still to be read."""
    moved_to: int = 0
    """After a claim of new events: the revision of the queue's row."""


@dataclass(frozen=True, slots=True)
class Idle:
    """Nothing was claimed."""

    seconds: float | None
    """For so long there is nothing to claim; None: until somebody rings."""

    @classmethod
    def until_due(cls, state: Mapping[str, Any]) -> Idle:
        """Until something is due or free, as the queue's *state* has it."""
        times = [each for each in (state["due_in"], state["free_in"]) if each is not None]
        if not times:
            return cls(None)
        # What is due or free and could not be claimed is locked by somebody.
        return cls(min(times) + 0.002 if min(times) > 0 else LOCKED_RETRY_SECONDS)


Again: TypeAlias = Literal["again"]
"""Nothing was claimed, but something may be: look again."""


class Pace:
    """How many events a range has, and how many ranges there are. Pure."""

    def __init__(self, listener: Listener) -> None:
        call = listener.call
        self._least = min(listener.concurrency, listener.batch_size)
        self._full = self._most = listener.batch_size
        self._is_plain = call.session == "none" and not call.batch and not listener.is_limited
        if self._is_plain and self._most >= USUAL:
            self._most = max(self._most, AT_SPEED)
        # With a session, each event is settled by itself, one after the other within a range.
        side_by_side = min(listener.concurrency, MAX_CONCURRENT_RANGES)
        self._usual_ranges = 2 if call.session == "none" else max(2, side_by_side)
        # A handler that takes batches wants whole ones.
        first = self._full if call.batch else 4 * listener.concurrency
        self.size: int = min(first, self._full)
        self.ranges: int = self._usual_ranges
        """How many this process may hold. At speed one more: the next is read meanwhile."""

    def ended(self, seconds: float, handling: Sequence[float]) -> None:
        """A range took *seconds*, and its handlers *handling* seconds, for each of its events."""
        if not handling:
            return
        # With a session, an event's commit takes longer than its handler.
        growth = self._growth(seconds, sum(handling) if self._is_plain else seconds)
        # The first ones may have been easy: larger ranges are for who was fast with a full one.
        most = self._most if 2 * len(handling) >= self._full else self._full
        if growth < 1:
            self.size = max(self._least, self.size // 2)
        elif 2 * len(handling) >= self.size:
            self.size = max(self.size, min(most, int(growth * len(handling))))
        if self.size > self._full and _median(handling) * self._most > FAST_SECONDS:
            self.size = self._full
        self.ranges = self._usual_ranges + (self.size > self._full)

    @staticmethod
    def _growth(seconds: float, handling: float) -> float:
        """How many times as large the next range may be."""
        if handling * MAX_GROWTH < FAST_SECONDS:
            # What took longer are the claim, and the turns of other listeners.
            return MAX_GROWTH
        if seconds < TARGET_RANGE_SECONDS / 2:
            return min(MAX_GROWTH, TARGET_RANGE_SECONDS / seconds)
        return 1 if seconds <= 2 * TARGET_RANGE_SECONDS else 0.5


def _median(numbers: Sequence[float]) -> float:
    """About; not the mean, to which one call adds much while others have the processor. Pure."""
    few = sorted(numbers[:: 1 + len(numbers) // 50])
    return few[len(few) // 2]
