"""Which events to claim, and where the queue's cursor is then. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sa_outbox.event.row import ID, PRIORITY, WAIT

from ..position.gaps import NO_GAPS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..position.gaps import Gaps
    from ..position.horizon import HorizonSnapshot
    from ..position.progress import Progress

PASSED_OVER = 10_000
"""Ids of events for others that were passed, after which the cursor is written at once."""


def leaving(position: int, gaps: Gaps, taken: Iterable[int]) -> tuple[int, Gaps]:
    """Cursor and gaps after *taken* were claimed and nothing else was. Pure."""
    ids = sorted(taken)
    left, highest = gaps.copy(), max(position, ids[-1])
    left.add(position + 1, highest)
    for each in ids:
        left.remove(each)
    return highest, left


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
