"""Which event may be handled next: those of one lane never side by side. Pure."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from sa_outbox.event.row import ID

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from ..handler.delivery import InFlight
    from ..transaction.group import Joins


class Lanes:
    """Queues by lane. A lane is the event's key, itself (no key), or one for all (order="total").

    A lane is handed out by its first event and taken back before its second one is.
    """

    is_one = False
    """Whether one event that is out keeps all others waiting, whatever their lanes are."""

    def __init__(self) -> None:
        # Apart, because most lanes hold one event: a queue for each would cost more than the
        # rest of its way, and have the garbage collector run again and again.
        self._first: dict[object, InFlight] = {}
        self._rest: dict[object, deque[InFlight]] = {}
        self._ready: deque[object] = deque()
        self._running: set[object] = set()
        self.count: int = 0
        """Events that wait; those that run are not among them."""
        self.ready_at: float | None = None
        """When something may be taken that may not now; None: nothing but what is ``ready``."""

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def ready(self) -> int:
        """Lanes from which an event can be taken."""
        return len(self._ready)

    def put(self, item: InFlight) -> None:
        lane = item.lane
        self.count += 1
        if lane in self._first:
            self._rest.setdefault(lane, deque()).append(item)
            return
        self._first[lane] = item
        if lane not in self._running:
            self._ready.append(lane)

    def put_all(self, items: list[InFlight]) -> None:
        for item in items:
            self.put(item)

    def take(self) -> InFlight | None:
        """The next event whose lane is free; the lane is not, from now on."""
        if not self._ready:
            return None
        lane = self._ready.popleft()
        self._running.add(lane)
        return self._pop(lane)

    def take_batch(self, most: int) -> list[InFlight]:
        """Everything that waits in free lanes, in the order of the log, up to *most* events.

        One that is to be attempted alone comes alone. Their lanes are taken until they are freed.
        """
        items: list[InFlight] = []
        while len(items) < most and self._ready:
            lane = self._ready[0]
            if self._first[lane].single:
                if not items:
                    first = self.take()
                    return [] if first is None else [first]
                break
            self._ready.popleft()
            self._running.add(lane)
            if lane not in self._rest:  # most
                items.append(self._first.pop(lane))
                self.count -= 1
                continue
            while len(items) < most and lane in self._first and not self._first[lane].single:
                items.append(self._pop(lane))
        items.sort(key=_position)
        return items

    def take_more(self, held: Iterable[object], joins: Joins) -> InFlight | None:
        """The next event for a task that has the lanes *held* and goes on in its transaction: of a
        free lane, or of one of these. None: nothing, or one that may not join it."""
        lane = self._next(held)
        if lane is None or not joins(self._first[lane]):
            return None
        if lane not in self._running:
            self._ready.popleft()
            self._running.add(lane)
        return self._pop(lane)

    def has_more(self, held: Iterable[object], joins: Joins) -> bool:
        """Whether ``take_more`` has one."""
        lane = self._next(held)
        return lane is not None and joins(self._first[lane])

    def _next(self, held: Iterable[object]) -> object | None:
        if self._ready:
            return self._ready[0]
        return next((lane for lane in held if lane in self._first), None)

    def free(self, lane: object) -> None:
        """Take a lane back: its next event may be handed out. Not if it is free already."""
        if lane in self._running:
            self._running.remove(lane)
            if lane in self._first:
                self._ready.append(lane)

    def remove(self, lane: object) -> list[InFlight]:
        """Take all that waits in a lane that runs out of it."""
        if lane not in self._first:
            return []
        items = [self._first.pop(lane), *self._rest.pop(lane, ())]
        self.count -= len(items)
        return items

    def withdraw(self, item: InFlight) -> bool:
        """Take the first of a lane that does not run out of it. False: it does not wait there."""
        lane = item.lane
        if self._first.get(lane) is not item or lane in self._running:
            return False
        self._pop(lane)
        if lane not in self._first:
            self._ready.remove(lane)
        return True

    def put_back(self, items: list[InFlight]) -> None:
        """Put events of one running lane back to its front, in their order."""
        if items:
            lane = items[0].lane
            self._first[lane], *rest = [*items, *self.remove(lane)]
            if rest:
                self._rest[lane] = deque(rest)
            self.count += 1 + len(rest)

    def untake(self, items: list[InFlight], held: Container[object]) -> None:
        """*items* were taken and have not begun: they are next again, in their order. Lanes in
        *held* stay with whoever has them."""
        for lane, waiting in reversed(_by_lane(items).items()):
            self.put_back(waiting)
            if lane not in held:
                self._running.remove(lane)
                self._ready.appendleft(lane)

    def _pop(self, lane: object) -> InFlight:
        item = self._first.pop(lane)
        self.count -= 1
        rest = self._rest.get(lane)
        if rest is not None:
            self._first[lane] = rest.popleft()
            if not rest:
                del self._rest[lane]
        return item


class _OneQueue:
    """What waits in one queue, whatever the lanes are."""

    def __init__(self) -> None:
        self._waiting: deque[InFlight] = deque()
        self.count: int = 0
        """How many wait. Kept, and not asked of the queue: it is read for each event."""
        self.ready_at: float | None = None

    def put(self, item: InFlight) -> None:
        self._waiting.append(item)
        self.count += 1

    def put_all(self, items: list[InFlight]) -> None:
        self._waiting.extend(items)
        self.count = len(self._waiting)

    def put_back(self, items: list[InFlight]) -> None:
        self._waiting.extendleft(reversed(items))
        self.count = len(self._waiting)

    def untake(self, items: list[InFlight], _held: Container[object]) -> None:
        self.put_back(items)

    def take_more(self, held: Iterable[object], joins: Joins) -> InFlight | None:
        return self._pop() if self.has_more(held, joins) else None

    def has_more(self, _held: Iterable[object], joins: Joins) -> bool:
        return bool(self._waiting) and joins(self._waiting[0])

    def withdraw(self, item: InFlight) -> bool:
        try:
            self._waiting.remove(item)
        except ValueError:
            return False
        self.count -= 1
        return True

    def _keep(self, items: Iterable[InFlight]) -> None:
        self._waiting = deque(items)
        self.count = len(self._waiting)

    def _pop(self) -> InFlight:
        self.count -= 1
        return self._waiting.popleft()


class LooseLanes(_OneQueue):
    """Lanes for a range of a queue: each event is a lane of its own."""

    is_one = False

    @property
    def ready(self) -> int:
        return self.count

    def take(self) -> InFlight | None:
        return self._pop() if self._waiting else None

    def take_batch(self, most: int) -> list[InFlight]:
        items: list[InFlight] = []
        while len(items) < most and self._waiting:
            if self._waiting[0].single:
                return items or [self._pop()]
            items.append(self._pop())
        items.sort(key=_position)
        return items

    def free(self, lane: object) -> None:
        pass

    def remove(self, _lane: object) -> list[InFlight]:
        return []


class OneLane(_OneQueue):
    """Lanes for a listener that handles one event after the other: all wait in one queue.

    Whatever the keys are, the next event is handed out when the one before was taken back.
    """

    is_one = True

    def __init__(self) -> None:
        super().__init__()
        self._is_out = False

    @property
    def running(self) -> int:
        return int(self._is_out)

    @property
    def ready(self) -> int:
        return 0 if self._is_out or not self._waiting else 1

    def take(self) -> InFlight | None:
        if self._is_out or not self._waiting:
            return None
        self._is_out = True
        return self._pop()

    def take_batch(self, most: int) -> list[InFlight]:
        """One: a handler that takes batches has ``Lanes``."""
        item = self.take() if most else None
        return [] if item is None else [item]

    def free(self, _lane: object) -> None:
        self._is_out = False

    def remove(self, lane: object) -> list[InFlight]:
        items = [item for item in self._waiting if item.lane == lane]
        if items:
            self._keep(item for item in self._waiting if item.lane != lane)
        return items


def _by_lane(items: Iterable[InFlight]) -> dict[object, list[InFlight]]:
    by_lane: dict[object, list[InFlight]] = {}
    for item in items:
        by_lane.setdefault(item.lane, []).append(item)
    return by_lane


def _position(item: InFlight) -> int:
    found: int = item.row[ID]
    return found
