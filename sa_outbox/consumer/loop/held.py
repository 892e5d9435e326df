"""With ``order="total"``: the delivery that everything waits for, until its next attempt."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sa_outbox.declare.listener import Listener

    from ..handler.delivery import InFlight
    from ..lease.lease import Lease
    from .limits import AnyLanes


class HeldDelivery:
    """It waits in the front of its lane, which stays closed."""

    def __init__(self, listener: Listener, lease: Lease, lanes: AnyLanes) -> None:
        self._holds_failed = listener.order_mode.holds_failed
        self._lease = lease
        self._lanes = lanes
        self._item: InFlight | None = None
        self._retry_at = 0.0

    def __bool__(self) -> bool:
        return self._item is not None

    @property
    def until(self) -> float | None:
        return None if self._item is None else self._retry_at

    def begin(self) -> None:
        """The holder before us may have left one that waits."""
        if self._lease.retry_in is not None:
            self._retry_at = monotonic() + self._lease.retry_in

    def hold(self, item: InFlight) -> None:
        self._item = item
        self._retry_at = monotonic() + item.delay

    def let_go_in_time(self) -> None:
        if self._item is not None and monotonic() >= self._retry_at:
            held, self._item = self._item, None
            self._lanes.free(held.lane)

    def holds_the_first(self) -> bool:
        """After a change of holder: the event that failed before waits for its time first."""
        if self._lease.retry_position is None or self._item is not None:
            return False
        if monotonic() >= self._retry_at or not self._holds_failed:
            return False
        item = self._lanes.take()
        if item is None:
            return False
        self._lanes.put_back([item])
        self._item = item
        return True
