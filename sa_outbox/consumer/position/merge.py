"""From the cursors of the old partitions to the initial state of all new ones. Pure.

A cursor says: everything of my partition up to ``position`` is settled, except ``gaps``. An id is
*open* for it when it is above the position or in the gaps. The new partitions start at the highest
of the old positions, with gaps such that

- an event that its old partition has settled is open for no new one: else it is delivered twice;
- an event that its old partition has not settled is open, and so is an id that may still appear:
  else it is lost. Which partition it belongs to is known only for visible events; so every new
  partition has all of them open, and each event belongs to one.

An id that may still appear is open for *every* old partition: a hole is one of the whole log, and
none has forgotten it. So what is open for all stays open, examined or not. What is open for only
some is visible, or never will be; these are looked up in the log (``doubtful``), and those stay
open that are open for the partition they belong to. docs/partitions.md has the argument in words.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .gaps import Gaps

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@dataclass(frozen=True)
class CursorState:
    """The state of a partition's cursor."""

    position: int
    gaps: Gaps

    def open_up_to(self, top: int) -> Gaps:
        found = self.gaps.copy()
        found.add(self.position + 1, top)
        return found


class Merge:
    """*stands*: the states of all old partitions, in order."""

    def __init__(self, stands: Sequence[CursorState]) -> None:
        self.position: int = max(each.position for each in stands)
        self._open = [each.open_up_to(self.position) for each in stands]
        self._common: Gaps
        self.doubtful: Gaps
        self._common, self.doubtful = _split(self._open)
        """What is open for all; what is open for only some."""

    def gaps(self, visible: Iterable[tuple[int, int]]) -> Gaps:
        """The gaps of the new partitions. *visible*: id and old partition of every visible event in
        ``doubtful``, from a snapshot younger than the states."""
        found = self._common.copy()
        for position, partition in visible:
            if position in self._open[partition]:
                found.add(position, position)
        return found


def _split(sets: Sequence[Gaps]) -> tuple[Gaps, Gaps]:
    """What is in all of *sets*, and what is in some."""
    changes: dict[int, int] = {}
    for each in sets:
        for low, high in each:
            changes[low] = changes.get(low, 0) + 1
            changes[high + 1] = changes.get(high + 1, 0) - 1
    common, some = Gaps(), Gaps()
    depth, since = 0, 0
    for position in sorted(changes):
        if depth:
            (common if depth == len(sets) else some).add(since, position - 1)
        depth += changes[position]
        since = position
    return common, some
