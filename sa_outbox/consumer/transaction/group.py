"""Several events in one transaction: which, and how many. Pure.

A session's transaction costs a BEGIN, a write of the listener's row and a COMMIT. When more events
wait, a task handles them in one transaction, each after the first in a savepoint of its own, and
settles them together. It takes them one by one, so tasks that run side by side share what waits,
and a single event has a transaction to itself. For a sync handler it reserves its share of them, so
that a thread can go from one to the next; what has not begun when the group ends is given back.

The group ends when nothing waits, after ``MAX_SECONDS`` or ``MAX_EVENTS``, and at the first event
that fails: that one is rolled back to its savepoint, those before it are committed. It also ends
before an event that may not join: one to be attempted alone, or, in a queue with several handlers,
one whose handler takes another kind of session, or none. Nobody is in a group while somebody is
suspected: of a crash, or of losing connections.
"""

from __future__ import annotations

from collections import deque
from time import monotonic
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Sequence

    from ..handler.delivery import InFlight

Joins: TypeAlias = "Callable[[InFlight], bool]"
"""Whether an event may be handled in a transaction that has begun."""

MAX_EVENTS = 50
"""Fewer than the 64 subtransactions that PostgreSQL keeps per transaction at hand: beyond that,
everybody's snapshots become slower. Savepoints that handlers set count too."""
MAX_SECONDS = 0.05
"""Seconds after which a group takes in no further event. Locks are held for up to this long, and
for one handler, longer than in transactions of their own."""


class Lanes(Protocol):
    """Where events wait; *held* are the lanes that the group has."""

    @property
    def count(self) -> int: ...

    def take_more(self, held: Iterable[object], joins: Joins, /) -> InFlight | None: ...

    def has_more(self, held: Iterable[object], joins: Joins, /) -> bool: ...

    def untake(self, items: list[InFlight], held: Container[object], /) -> None: ...


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
        fits: Joins | None = None,
        share: int = 1,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """*fits*: whether an event's handler can be called in the transaction of the first; None:
        all have one handler. *share*: among how many tasks what waits is shared; 0: nothing may be
        reserved. *clock* counts seconds."""
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
        self._fits = fits
        self._share = share
        self._held = {item.lane: None for item in first}
        self._reserved: deque[InFlight] = deque()
        """Taken from the lanes, and not begun."""
        self._clock = clock
        self._until = clock() + MAX_SECONDS

    @property
    def all(self) -> list[InFlight]:
        """Everything that was taken, the one that failed too, in order."""
        last = self.now if self.failed is None else self.failed[0]
        return [*self.items] if last is None else [*self.items, last]

    def wants_more(self, savepoints: int) -> bool:
        """Whether another event is to be handled in this transaction. *savepoints*: how many the
        handlers have set."""
        if self.failed is not None or self.items[0].single or not self._has_room(savepoints):
            return False
        waits = bool(self._reserved) or self._lanes.has_more(self._held, self._joins)
        return waits and self._may_grow()

    def may_go_on(self, savepoints: int) -> bool:
        """In a thread: whether the next event that is reserved may begin. One that somebody has
        cancelled meanwhile may not."""
        if not self._reserved or self._reserved[0].cancel_requested:
            return False
        return self._has_room(savepoints) and self._may_grow()

    def _has_room(self, savepoints: int) -> bool:
        return len(self.items) + savepoints < MAX_EVENTS and self._clock() < self._until

    def reserve(self) -> Sequence[InFlight]:
        """Take what is handled next, without asking for each: no more than this task's share.
        Returns all that are reserved."""
        waits = -(-self._lanes.count // self._share) if self._share else 0
        most = min(MAX_EVENTS - len(self.items), waits)
        while len(self._reserved) < most:
            item = self._taken()
            if item is None:
                break
            self._reserved.append(item)
        return self._reserved

    def give_back(self) -> None:
        """What is reserved and has not begun waits again, where it was."""
        if self._reserved:
            started = {item.lane for item in self.all}
            self._lanes.untake([*self._reserved], started)
            self._reserved.clear()

    def take(self) -> InFlight | None:
        """The next event begins; None if another task has just taken it."""
        item = self._reserved.popleft() if self._reserved else self._taken()
        if item is not None:
            self.now = item
            item.outcome, item.failure, item.result = "done", None, None
        return item

    def _taken(self) -> InFlight | None:
        item = self._lanes.take_more(self._held, self._joins)
        if item is not None:
            self._held[item.lane] = None
            self.taken += 1
            self._began(1)
        return item

    def _joins(self, item: InFlight) -> bool:
        return not item.single and (self._fits is None or self._fits(item))

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
