"""Several events in one transaction: which, and how many. Pure.

A session's transaction costs a BEGIN, a write of the listener's row and a COMMIT. When more events
wait, a task handles them in one transaction, each after the first in a savepoint of its own, and
settles them together. It takes them one by one, so tasks that run side by side share what waits,
and a single event has a transaction to itself.

The group ends when nothing waits, after ``MAX_SECONDS`` or ``MAX_EVENTS``, and at the first event
that fails: that one is rolled back to its savepoint, those before it are committed. Nobody is in a
group while somebody is suspected: of a crash, or of losing connections.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ..handler.delivery import InFlight

MAX_EVENTS = 50
"""Fewer than the 64 subtransactions that PostgreSQL keeps per transaction at hand: beyond that,
everybody's snapshots become slower. Savepoints that handlers set count too."""
MAX_SECONDS = 0.05
"""Seconds after which a group takes in no further event. Locks are held for up to this long, and
for one handler, longer than in transactions of their own."""


class Lanes(Protocol):
    """Where events wait; *held* are the lanes that the group has."""

    def take_more(self, held: Iterable[object], /) -> InFlight | None: ...

    def has_more(self, held: Iterable[object], /) -> bool: ...


class GroupBroken(Exception):
    """The transaction is gone, because of *culprit*: of its events none is settled."""

    def __init__(self, culprit: InFlight) -> None:
        super().__init__(f"event {culprit.position} ended the transaction of its group")
        self.culprit = culprit


class Group:
    """The events of one transaction, in the order in which they are handled."""

    def __init__(
        self,
        first: list[InFlight],
        lanes: Lanes,
        may_grow: Callable[[], bool],
        began: Callable[[int], None],
    ) -> None:
        self.items: list[InFlight] = [*first]
        """Those whose handler returned."""
        self.failed: tuple[InFlight, BaseException] | None = None
        """The last one, if its handler did not: it is not part of the transaction."""
        self.now: InFlight | None = None
        """Whose handler is being called, after the first."""
        self.taken: int = 0
        """How many were taken after the first."""
        self._lanes = lanes
        self._may_grow = may_grow
        self._began = began
        self._held = {item.lane: None for item in first}
        self._until = monotonic() + MAX_SECONDS

    @property
    def all(self) -> list[InFlight]:
        """Everything that was taken, the one that failed too, in order."""
        last = self.now if self.failed is None else self.failed[0]
        return [*self.items] if last is None else [*self.items, last]

    def wants_more(self, savepoints: int) -> bool:
        """Whether another event is to be handled in this transaction. *savepoints*: how many the
        handlers have set."""
        if self.failed is not None or self.items[0].single:
            return False
        if len(self.items) + savepoints >= MAX_EVENTS or monotonic() >= self._until:
            return False
        return self._may_grow() and self._lanes.has_more(self._held)

    def take(self) -> InFlight | None:
        """The next event; None if another task has just taken it."""
        item = self._lanes.take_more(self._held)
        if item is not None:
            self.now = item
            item.outcome, item.failure, item.result = "done", None, None
            self._held[item.lane] = None
            self.taken += 1
            self._began(1)
        return item

    def succeeded(self) -> None:
        if self.now is not None:
            self.items.append(self.now)
            self.now = None

    def fail(self, error: BaseException) -> None:
        """The one being handled failed."""
        assert self.now is not None  # noqa: S101 - for the type checker
        self.failed, self.now = (self.now, error), None

    def spoiled(self, error: BaseException) -> None:
        """The last one whose handler returned can't be committed."""
        self.failed = (self.items.pop(), error)
