"""A listener's progress: what is read, what is settled, what is saved. Pure.

The saved state says: everything up to ``position`` is settled, except ``gaps``. Gaps are ids that
may still appear (holes of the log) and events that were read but not settled while later ones are.
Whoever continues from a saved state reads the gaps and what is above the position, and so gets
every unsettled event, and no other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .gaps import NO_GAPS, Gaps

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .horizon import HorizonSnapshot


@dataclass(frozen=True, slots=True)
class Saved:
    """The content of the listener's row, or what it is about to be."""

    position: int
    gaps: str
    revision: int
    """How many times it was written."""


class Progress:
    def __init__(self, position: int, gaps: str = NO_GAPS, revision: int = 0) -> None:
        """As the row has it."""
        self.holes: Gaps = Gaps.parse(gaps)
        """Ids up to ``read_to`` that no read has shown, and that may still appear."""
        self.saved: Saved = Saved(position, self.holes.dump(), revision)
        self.read_to: int = position
        """Every id up to here was read, or is in ``holes``."""
        self.unsettled: set[int] = set()
        """Events that were read and are not settled."""

    def holds(self, ids: Iterable[int]) -> None:
        """For a range: these are all that is left of it, and nothing else can appear in it."""
        self.holes = Gaps()
        self.unsettled = set(ids)

    def has_read(
        self, ids: Sequence[int], matching: Iterable[int], *, upper: int, snapshot: HorizonSnapshot
    ) -> None:
        """Take in a read of everything visible in the holes and above ``read_to``, up to *upper*.

        *snapshot* was taken before the read. *ids* are all that the read showed, of any type; those
        *matching* are the listener's. A read that hit its limit ends at its last id: *upper*.
        """
        if self.holes.lows:
            for each in ids:
                if each <= self.read_to:
                    self.holes.remove(each)
        if upper > snapshot.final and upper > self.read_to:
            self._note_holes(ids, upper)
        self.read_to = max(self.read_to, upper)
        # Final before this read began, and the read did not show them: they were rolled back. Not
        # those above upper: a read that hit its limit did not get there.
        if self.holes.lows:
            self.holes.remove_up_to(min(snapshot.final, upper))
        self.unsettled.update(matching)

    def _note_holes(self, ids: Sequence[int], upper: int) -> None:
        expected = self.read_to + 1
        for each in ids:
            if each < expected:
                continue
            if each > expected:
                self.holes.add(expected, each - 1)
            expected = each + 1
        if expected <= upper:
            self.holes.add(expected, upper)

    def after(self, settled: Iterable[int]) -> Saved:
        """The state to save once the events at *settled* are settled."""
        gone = set(settled)
        left = self.unsettled - gone
        position = max(self.saved.position, max(gone, default=0))
        if not left or max(left) <= position:
            position = max(position, self.read_to)
        if not left and not self.holes.lows:
            return Saved(position, NO_GAPS, self.saved.revision + 1)
        gaps = self.holes.up_to(position)
        for each in left:
            if each <= position:
                gaps.add(each, each)
        return Saved(position, gaps.dump(), self.saved.revision + 1)

    def settle(self, settled: Iterable[int], saved: Saved) -> None:
        """The state *saved* is committed."""
        self.unsettled.difference_update(settled)
        self.saved = saved
