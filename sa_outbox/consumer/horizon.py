"""What is final: the grace period. Pure; ``looking.py`` asks the database.

A writer holds a lock on the log from before it draws an id until after its commit is visible. So a
look at (1) the highest visible id and then (2) who holds that lock tells: every id up to that
ceiling is visible by now, never will be, or belongs to one of those holders. When the last of them
has ended, everything up to the ceiling is final, and a read that starts after that misses nothing.
docs/guarantees.md has the argument, tests/unit/test_horizon_model.py tries every order of events.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Set


@dataclass(frozen=True, slots=True)
class Look:
    """What one look told. Only a read that starts after it may use it."""

    number: int
    """Looks of this process, counted from 1; 0: none yet."""
    ceiling: int
    """The highest id that was visible."""
    final: int
    """Up to here nothing can still appear."""
    writers: int
    """Transactions that may still commit ids up to the ceiling."""

    def up_to(self, position: int) -> Look:
        """What it told of the ids up to *position*."""
        if position >= self.ceiling:
            return self
        return replace(self, ceiling=position, final=min(self.final, position))


NOTHING = Look(0, 0, 0, 0)


class Horizon:
    """Remembers the looks whose writers have not all ended.

    Never more of them than there are open writers: an old look's writers that are still open are
    among those of every younger look, so the sets are nested, and of equal ones the younger look
    says more.
    """

    def __init__(self) -> None:
        self.latest = NOTHING
        self.number = 0
        """Of the last look, also when it was forgotten."""
        self._pending: list[tuple[int, frozenset[str]]] = []

    def look(self, ceiling: int, holders: Set[str]) -> Look:
        """Take in the answers to (1) and (2), asked in this order."""
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
        self.latest = Look(self.number, ceiling, final, len(now))
        return self.latest

    def forget(self) -> None:
        """Begin afresh, after a reconnect: the server may have restarted.

        A transaction prepared before a crash has another virtual id after it, and after a failover
        ids may be drawn a second time. The number goes on: waiting for "a later look" stays right.
        """
        self._pending = []
        self.latest = NOTHING
