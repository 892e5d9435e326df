"""With ``order="total"``: the delivery that everything waits for, until its next attempt."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from sa_outbox.clock import clock

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..handler.delivery import InFlight
    from ..lease.lease import Lease
    from .limits import AnyLanes
    from .ration import RationedLanes


class HeldDelivery:
    """It waits in the front of its lane, which stays closed."""

    def __init__(self, lease: Lease, lanes: AnyLanes | RationedLanes) -> None:
        self._lease = lease
        self._lanes = lanes
        self._item: InFlight | None = None
        self._retry_at = 0.0
        """By the clock that may be moved."""

    def __bool__(self) -> bool:
        return self._item is not None

    @property
    def until(self) -> float | None:
        """By the local clock, which is never moved."""
        return None if self._item is None else self._retry_at - clock.seconds_ahead

    def begin(self) -> None:
        """The holder before us may have left one that waits."""
        if self._lease.retry_in is not None:
            self._retry_at = _now() + self._lease.retry_in

    def hold_one_of(self, items: Iterable[InFlight]) -> None:
        """Of these, which are settled: the one that failed and is to be attempted again."""
        for item in items:
            if item.outcome == "hold":
                self._item, self._retry_at = item, _now() + item.delay

    def let_go_in_time(self) -> None:
        if self._item is not None and _now() >= self._retry_at:
            held, self._item = self._item, None
            self._lanes.free(held.lane)

    def holds_the_first(self) -> bool:
        """After a change of holder: the event that failed before waits for its time first."""
        if self._lease.retry_position is None or self._item is not None:
            return False
        if _now() >= self._retry_at:
            return False
        item = self._lanes.take()
        if item is None:
            return False
        self._lanes.put_back([item])
        self._item = item
        return True


def _now() -> float:
    return monotonic() + clock.seconds_ahead
