"""Where a loop's deliveries come from, as the loop sees it: the log, or a range of a queue.

A source puts into its lanes what may be handled, and gives the loop what is settled without an
attempt: an event for later, one behind a parked delivery of its key, one that can't be read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from ..connection.statements import Settling
    from ..handler.delivery import InFlight
    from ..lanes.limits import AnyLanes

S = TypeVar("S", bound="Source")


class Intake(Protocol):
    """What a source sees of its loop."""

    def settle_unattempted(self, items: Sequence[InFlight]) -> None: ...

    def wake(self) -> None: ...

    def start(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run *work* beside the handlers, until the loop ends."""
        ...


class Inflow(Protocol):
    """What a loop takes in while it runs."""

    async def take_in(self, intake: Intake, room: int) -> None:
        """Fill the lanes with what is next, up to *room* deliveries."""
        ...

    def has_new(self, now: float) -> bool:
        """Whether ``take_in`` may find something."""
        ...

    def next_at(self, *, has_room: bool) -> float:
        """When ``take_in`` has something to do, unless somebody wakes the loop before."""
        ...

    def caught_up(self) -> None:
        """Everything that was taken in is settled, and nothing is new."""
        ...

    async def close(self) -> None:
        """The loop is about to end: nothing is to be taken in any more."""
        ...


class Source(Protocol):
    """What a loop sees of its source."""

    @property
    def inflow(self) -> Inflow | None:
        """None: everything is in the lanes from the start."""
        ...

    @property
    def lanes(self) -> AnyLanes: ...

    @property
    def statements(self) -> Settling:
        """What is written under the lease."""
        ...

    @property
    def size(self) -> int | None:
        """How many deliveries there are in all; None: there is no end."""
        ...

    @property
    def is_finished(self) -> bool:
        """There were deliveries, and all are settled. Never of the log."""
        ...

    @property
    def is_at_barrier(self) -> bool:
        """The lease is to be given back: what is saved has come to its barrier, or will have."""
        ...

    async def begin(self) -> Sequence[InFlight] | None:
        """Once, before anything else. None: there is nothing to do. Else what is settled without
        an attempt."""
        ...

    def settled(self, items: Sequence[InFlight]) -> bool:
        """*items* are committed; they have a row, or had one, or are dead letters. True:
        ``take_in`` has something to do."""
        ...

    def follow(self, parked: InFlight) -> list[InFlight]:
        """What goes behind a delivery that is being parked."""
        ...

    def unfollow(self, followed: list[InFlight]) -> None:
        """These can't go behind one that can't be parked."""
        ...

    def withdraw(self, position: int) -> InFlight | None:
        """Somebody cancelled that event: mark it. Returned if it was waiting; then it is out."""
        ...
