"""Limits of a queue in this process: how many at once for a tenant, how many in a time. Pure."""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, TypeAlias

from sa_outbox.event.row import TENANT
from sa_outbox.policy.rate import Bucket

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable

    from sa_outbox.declare.listener import Listener

    from ..handler.delivery import InFlight
    from ..transaction.group import Joins
    from .lanes import Lanes, LooseLanes, OneLane

AnyLanes: TypeAlias = "Lanes | OneLane | LooseLanes | LimitedLanes"

MAX_BUCKETS = 10_000
"""Tenants whose rate is remembered; those that were quiet for longest are forgotten."""


class ConcurrencyLimits:
    """Shared by all ranges of one queue. *clock* counts seconds."""

    def __init__(
        self, listener: Listener, wake: Callable[[], None], clock: Callable[[], float] = monotonic
    ) -> None:
        self._listener = listener
        self._wake = wake
        self._clock = clock
        self._bucket = None if listener.rate is None else Bucket(listener.rate, clock())
        self._buckets: OrderedDict[str | None, Bucket] = OrderedDict()
        self._inside: Counter[str | None] = Counter()
        self._is_waited_for = False

    def wait(self, tenant: str | None) -> float:
        """Seconds until an event of *tenant* may begin; infinite: when another one has ended."""
        most = self._listener.tenant_concurrency
        if most is not None and self._inside[tenant] >= most:
            self._is_waited_for = True
            return inf
        now = self._clock()
        wait = 0.0 if self._bucket is None else self._bucket.wait(now)
        bucket = self._of(tenant, now)
        return wait if bucket is None else max(wait, bucket.wait(now))

    def enter(self, tenant: str | None) -> None:
        self._inside[tenant] += 1
        if self._bucket is not None:
            self._bucket.take()
        bucket = self._of(tenant, self._clock())
        if bucket is not None:
            bucket.take()

    def leave(self, tenant: str | None) -> None:
        self._inside[tenant] -= 1
        if not self._inside[tenant]:
            del self._inside[tenant]
        if self._is_waited_for:
            self._is_waited_for = False
            self._wake()

    def _of(self, tenant: str | None, now: float) -> Bucket | None:
        rate = self._listener.tenant_rate
        if rate is None:
            return None
        bucket = self._buckets.pop(tenant, None) or Bucket(rate, now)
        self._buckets[tenant] = bucket
        if len(self._buckets) > MAX_BUCKETS:
            self._buckets.popitem(last=False)
        return bucket


class LimitedLanes:
    """What waits in a range, by tenant: each in turn, as far as the limits let them."""

    is_one = False

    def __init__(self, limits: ConcurrencyLimits, clock: Callable[[], float] = monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._waiting: OrderedDict[str | None, deque[InFlight]] = OrderedDict()
        self._running: dict[object, str | None] = {}
        self.count: int = 0
        self._ready_at = 0.0

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def ready(self) -> int:
        return self.count if self._clock() >= self._ready_at else 0

    @property
    def ready_at(self) -> float | None:
        """When there may be something to take again; None: when somebody wakes us."""
        return self._ready_at if self.count and self._ready_at < inf else None

    def put(self, item: InFlight) -> None:
        self._waiting.setdefault(_tenant(item), deque()).append(item)
        self.count += 1

    def put_all(self, items: list[InFlight]) -> None:
        for item in items:
            self.put(item)

    def take(self) -> InFlight | None:
        """The next event that may begin now."""
        soonest = inf
        for tenant in tuple(self._waiting):
            wait = self._limits.wait(tenant)
            if wait > 0:
                soonest = min(soonest, wait)
                continue
            self._limits.enter(tenant)
            item = self._waiting[tenant].popleft()
            self._waiting.move_to_end(tenant)
            if not self._waiting[tenant]:
                del self._waiting[tenant]
            self._running[item.lane] = tenant
            self.count -= 1
            self._ready_at = 0.0
            return item
        self._ready_at = self._clock() + soonest if self.count else 0.0
        return None

    def take_batch(self, most: int) -> list[InFlight]:
        """One: a queue with limits has no batches."""
        item = self.take() if most else None
        return [] if item is None else [item]

    def take_more(self, _held: Iterable[object], joins: Joins) -> InFlight | None:
        for tenant, waiting in self._waiting.items():
            if self._limits.wait(tenant) <= 0:
                # Left where it is: put back, it would have had its turn, and a part of the rate.
                return self.take() if joins(waiting[0]) else None
        return self.take()

    def has_more(self, _held: Iterable[object], _joins: Joins) -> bool:
        return self.ready > 0

    def wake(self) -> None:
        """Somebody has left: look again."""
        self._ready_at = 0.0

    def free(self, lane: object) -> None:
        if lane in self._running:
            self._limits.leave(self._running.pop(lane))
            self._ready_at = 0.0

    def remove(self, _lane: object) -> list[InFlight]:
        """Nothing waits behind an event of a queue."""
        return []

    def withdraw(self, item: InFlight) -> bool:
        """Take one that waits out of the lanes; False: it does not wait, or not any more."""
        waiting = self._waiting.get(_tenant(item))
        if waiting is None or item not in waiting:
            return False
        waiting.remove(item)
        if not waiting:
            del self._waiting[_tenant(item)]
        self.count -= 1
        return True

    def put_back(self, items: list[InFlight]) -> None:
        for item in reversed(items):
            self._waiting.setdefault(_tenant(item), deque()).appendleft(item)
        self.count += len(items)

    def untake(self, items: list[InFlight], _held: Container[object]) -> None:
        """*items* were taken and have not begun. Their part of a rate is spent."""
        for item in items:
            self.free(item.lane)
        self.put_back(items)


def _tenant(item: InFlight) -> str | None:
    tenant: str | None = item.row[TENANT]
    return tenant
