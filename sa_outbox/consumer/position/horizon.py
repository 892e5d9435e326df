"""What is final: the grace period. Pure; ``services/horizon_reader.py`` queries the database.

A writer holds a lock on the log from before it draws an id until after its commit is visible. So
read (1) the highest visible id and then (2) who holds that lock: every id up to that ceiling is
visible by now, never will be, or belongs to one of those holders. When the last of them has ended,
everything up to the ceiling is final, and a read that starts after that misses nothing.
docs/guarantees.md has the argument; tests/unit/test_horizon_model.py tries every order of events.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Set


@dataclass(frozen=True, slots=True)
class HorizonSnapshot:
    """The result of one read of the horizon. Only a read of events that starts after it may use
    it."""

    number: int
    """Snapshots of this process, counted from 1; 0: none yet."""
    ceiling: int
    """The highest id that was visible, in this or an earlier snapshot."""
    final: int
    """Nothing can still appear up to this id."""
    writers: int
    """Transactions that may still commit ids up to the ceiling."""

    def up_to(self, position: int) -> HorizonSnapshot:
        """The part of it that concerns the ids up to *position*."""
        if position >= self.ceiling:
            return self
        return replace(self, ceiling=position, final=min(self.final, position))


NOTHING = HorizonSnapshot(0, 0, 0, 0)


class Horizon:
    """Remembers the snapshots whose writers have not all ended.

    Never more of them than there are open writers: an old snapshot's writers that are still open
    are among those of every younger one, so the sets are nested, and of equal ones the younger
    snapshot says more.
    """

    def __init__(self) -> None:
        self.latest: HorizonSnapshot = NOTHING
        self.number: int = 0
        """Number of the last snapshot, even if it was forgotten."""
        self.highest: int = 0
        """The highest id ever seen, for display. The ceiling may fall, when retention deletes the
        newest events. Nothing is decided by it."""
        self.connected_at: int | None = None
        """The ceiling of the first snapshot since the memory was cleared; None: there is none yet.
        What is above it was committed while this process was connected to the server as it is."""
        self._pending: list[tuple[int, frozenset[str]]] = []

    def observe(self, ceiling: int, holders: Set[str]) -> HorizonSnapshot:
        """Take in the answers to (1) and (2), queried in this order."""
        now = frozenset(holders)
        final = self.latest.final
        kept: dict[frozenset[str], int] = {}
        for height, writers in (*self._pending, (ceiling, now)):
            left = writers & now
            if left:
                kept[left] = max(height, kept.get(left, 0))
            else:
                final = max(final, height)
        self._pending = [(height, left) for left, height in kept.items()]
        self.number += 1
        if self.connected_at is None:
            self.connected_at = ceiling
        self.saw(ceiling)
        # What is final was visible, even if retention has deleted it since.
        self.latest = HorizonSnapshot(self.number, max(ceiling, final), final, len(now))
        return self.latest

    def saw(self, position: int) -> None:
        """An event or a cursor was there."""
        self.highest = max(self.highest, position)

    def forget(self) -> None:
        """Start afresh after a reconnect: the server may have restarted.

        A transaction prepared before a crash has a different virtual id after it, and after a
        failover ids may be drawn a second time. The number continues: waiting for "a later
        snapshot" stays correct.
        """
        self._pending = []
        self.latest = NOTHING
        self.connected_at = None
