"""Relays whose receiver is unreachable, for those who wait in ``drain``: they wait, but not
forever. Pure.

An unreachable relay fails no event and counts no attempt, so nothing else would end the wait.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_HIGHEST = 2**63 - 1


@dataclass(eq=False, slots=True)
class Watch:
    """For one drain: listeners that were turned away, and have settled nothing since."""

    patience: float
    """Seconds after which to stop waiting for such a listener."""
    _ceiling: int = _HIGHEST
    _since: dict[str, float] = field(default_factory=dict)
    _why: dict[str, str] = field(default_factory=dict)

    def waits_up_to(self, ceiling: int) -> None:
        """The drain does not wait for events above it: settling one is no progress."""
        self._ceiling = min(self._ceiling, ceiling)

    def turned_away(self, listener: str, why: str, now: float) -> None:
        self._since.setdefault(listener, now)
        self._why[listener] = why

    def settled(self, listener: str, position: int) -> None:
        if position <= self._ceiling:
            self._since.pop(listener, None)

    def given_up(self, now: float) -> dict[str, str]:
        """Listeners that are no longer waited for, each with what turned it away."""
        return {
            listener: self._why[listener]
            for listener, since in self._since.items()
            if now - since >= self.patience
        }


class RelayOutages:
    """Informs those who watch. Costs nothing while nobody does."""

    def __init__(self) -> None:
        self.watches: list[Watch] = []

    @contextmanager
    def watch(self, patience: float) -> Iterator[Watch]:
        watch = Watch(patience)
        self.watches.append(watch)
        try:
            yield watch
        finally:
            self.watches.remove(watch)

    def turned_away(self, listener: str, why: str, now: float) -> None:
        for watch in self.watches:
            watch.turned_away(listener, why, now)

    def settled(self, listener: str, positions: Iterable[int]) -> None:
        lowest = min(positions, default=_HIGHEST)
        for watch in self.watches:
            watch.settled(listener, lowest)
