"""What one consumer works on: the listeners it holds leases of, and its queues."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ..loop.holder import RELEASE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..loop.holder import HeldLeases
    from ..loop.log_source import LogSource
    from ..loop.loop import DeliveryLoop
    from ..queue.queue import Queue
    from ..queue.range_source import RangeSource


class Workload:
    def __init__(self, holder: HeldLeases[LogSource], queues: Sequence[Queue]) -> None:
        self.holder = holder
        self.queues = queues

    @property
    def loops(self) -> Sequence[DeliveryLoop[LogSource]]:
        """Those that read the log. A copy: loops begin and end while it is gone through."""
        return tuple(self.holder.loops.values())

    @property
    def holders(self) -> Sequence[HeldLeases[LogSource] | HeldLeases[RangeSource]]:
        """All that work under leases."""
        return (self.holder, *(queue.holder for queue in self.queues))

    @property
    def is_empty(self) -> bool:
        return not self.holder.loops and not self.queues

    @property
    def is_idle(self) -> bool:
        """No handler runs, and nothing waits to be settled."""
        return all(loop.is_idle for holder in self.holders for loop in holder.loops.values())

    def wake(self) -> None:
        """Have every loop look whether there is something to hand out."""
        for holder in self.holders:
            for loop in holder.loops.values():
                loop.wake()

    def wake_queues(self) -> None:
        for queue in self.queues:
            queue.wake()

    def look_for_due(self) -> None:
        """A delivery may be due that nobody knew of: it was replayed, or released."""
        for loop in self.loops:
            loop.source.look_for_due()
            loop.wake()

    def look_for_requests(self) -> None:
        """Somebody has cancelled an event that was taken, perhaps by us."""
        for queue in self.queues:
            queue.look_for_requests()

    def stop(self) -> None:
        """Begin nothing new."""
        for holder in self.holders:
            holder.stop()
        for queue in self.queues:
            queue.bell.ring()

    def cancel(self) -> None:
        """Cancel what still runs; its leases are given back."""
        for holder in self.holders:
            holder.cancel()
        self.hurry()

    def hurry(self) -> None:
        """Wait no longer for takes that the database does not answer soon."""
        for queue in self.queues:
            queue.hurry(RELEASE_SECONDS)

    @property
    def is_at_work(self) -> bool:
        return self.holds_leases or any(queue.is_running for queue in self.queues)

    @property
    def holds_leases(self) -> bool:
        return bool(self.holder.loops) or any(queue.held for queue in self.queues)

    def in_flight(self) -> Counter[str]:
        """Deliveries that are being handled, or wait for their turn: by listener."""
        found = Counter[str]()
        for (name, _), loop in self.holder.loops.items():
            found[name] += loop.in_flight
        for queue in self.queues:
            loops = queue.holder.loops.values()
            found[queue.listener.name] += sum(each.in_flight for each in loops)
        return found
