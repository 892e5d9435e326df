"""A range of a queue as a source: all of its deliveries are there from the start.

Invariant: the range's row says which of its events are not settled; each write under its lease
removes those that are, in one transaction with their outcomes, and the last one deletes the row.
Whoever takes the range over reads from it what is left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sa_outbox.event.row import ID, PAYLOAD

from ..fault.quarantine import CrashQuarantine
from ..fault.refusals import ReadRefused, Reads, unreadable
from ..handler.delivery import InFlight
from ..lanes.lanes import LooseLanes
from ..lanes.limits import LimitedLanes
from ..loop.due import can_be_read
from ..loop.isolation import Isolation
from ..loop.loop import DeliveryLoop
from ..position.gaps import Gaps
from ..position.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import anyio

    from sa_outbox.declare.listener import Listener

    from ..connection.connections import Query
    from ..connection.statements import RangeStatements
    from ..lanes.limits import ConcurrencyLimits
    from ..lease.lease import Lease
    from ..shared.context import ConsumerContext


class RangeSource:
    inflow = None
    is_at_barrier = False

    def __init__(
        self,
        context: ConsumerContext,
        lease: Lease,
        progress: Progress,
        quarantine: CrashQuarantine,
        *,
        rows: Sequence[Any] | None,
        read: Query,
        limits: ConcurrencyLimits | None,
        changed: Callable[[], None],
    ) -> None:
        self._context = context
        self._lease = lease
        self._progress = progress
        self._quarantine = quarantine
        self._refusals = context.refusals[lease.listener]
        self.statements: RangeStatements = context.statements.ranges
        self.lanes: LooseLanes | LimitedLanes = (
            LooseLanes() if limits is None else LimitedLanes(limits)
        )
        self._rows = rows
        """What the claim returned; None: another process had it, and it has to be read."""
        self._read = read
        self._changed = changed
        self._items: list[InFlight] = []
        self.size: int = 0
        self._requested: set[int] = set()
        """Positions to be cancelled, if that was known before they were read."""

    @property
    def is_finished(self) -> bool:
        return self.size > 0 and not self._progress.unsettled

    @property
    def handling(self) -> list[float]:
        """How many seconds its handlers took, for each event."""
        return [item.seconds for item in self._items]

    async def begin(self) -> Sequence[InFlight] | None:
        rows = await self._read_again() if self._rows is None else self._rows
        self._rows = None
        self._progress.holds(row[ID] for row in rows)
        if not rows:
            return None
        quarantine = self._quarantine
        if quarantine.is_on:
            quarantine.covers([row[ID] for row in rows])
        self._items, self.size = _items(rows), len(rows)
        aside: list[InFlight] = []
        if None in [row[PAYLOAD] for row in rows]:
            self._items = [self._checked(item) for item in self._items]
            aside = [item for item in self._items if item.aside]
        if quarantine.alone:  # these first
            suspects = set(quarantine.suspects)
            self._items.sort(key=lambda item: item.position not in suspects)
        self.lanes.put_all([item for item in self._items if not item.aside])
        return aside + self._withdrawn(rows)

    def _withdrawn(self, rows: Sequence[Any]) -> list[InFlight]:
        """Those that somebody cancelled before they could start."""
        asked = "cancel_requested" in rows[0].keys()  # noqa: SIM118 - no dict
        requested = {row[ID] for row in rows if asked and row["cancel_requested"]} | self._requested
        found = (self.withdraw(each) for each in sorted(requested))
        return [item for item in found if item is not None]

    def settled(self, items: Sequence[InFlight]) -> bool:
        if any(item.outcome != "done" for item in items):
            self._changed()  # a delivery has a row and a due time now
        return bool(items)

    def follow(self, parked: InFlight) -> list[InFlight]:  # noqa: ARG002 - see the protocol
        """Nothing waits behind an event of a queue."""
        return []

    def unfollow(self, followed: list[InFlight]) -> None: ...

    def look_again(self) -> None:
        """A limit may be free that was not."""
        if isinstance(self.lanes, LimitedLanes):
            self.lanes.wake()

    def withdraw(self, position: int) -> InFlight | None:
        if not self._items:
            self._requested.add(position)
            return None
        item = next((each for each in self._items if each.position == position), None)
        if item is None or position not in self._progress.unsettled:
            return None
        item.cancel_requested = True
        item.state = item.state or "scheduled"  # it has a row now
        if not self.lanes.withdraw(item):
            return None
        item.outcome, item.failure = "withdraw", None
        return item

    async def _read_again(self) -> list[Any]:
        """What is left of it, after another process or an outage."""
        lease, gaps = self._lease, Gaps.parse(self._lease.gaps)
        while True:
            try:
                return await Reads(self._refusals).carefully(
                    self._context.connections,
                    self._read,
                    lease.key,
                    name=lease.listener,
                    part=lease.part,
                    lows=gaps.lows,
                    highs=gaps.highs,
                )
            except ReadRefused as refused:
                await Isolation(self._context, lease.listener, self._refusals).of_read(refused)

    def _checked(self, item: InFlight) -> InFlight:
        if can_be_read(item.row):
            return item
        return unreadable(item.row, item.lane, self._refusals, self._context.redact)


def _items(rows: Sequence[Any]) -> list[InFlight]:
    if "state" not in rows[0].keys():  # noqa: SIM118 - no dict; new events of the log: most
        return [InFlight(row, row[ID]) for row in rows]
    return [InFlight(row, row[ID], attempts=row["attempts"], state=row["state"]) for row in rows]


def range_loop(
    context: ConsumerContext,
    listener: Listener,
    lease: Lease,
    rows: Sequence[Any] | None,
    *,
    read: Query,
    slots: anyio.Semaphore,
    limits: ConcurrencyLimits | None,
    changed: Callable[[], None],
) -> DeliveryLoop[RangeSource]:
    """A delivery loop for one range. *rows* are what the claim returned; None: *read* them.
    *changed* is called when a delivery of the range gets a row of its own, and a due time."""
    progress = Progress(lease.position, lease.gaps, lease.revision)
    quarantine = CrashQuarantine(lease.crashes, lease.suspects, listener)
    source = RangeSource(
        context, lease, progress, quarantine, rows=rows, read=read, limits=limits, changed=changed
    )
    return DeliveryLoop(context, listener, lease, progress, quarantine, source, slots=slots)
