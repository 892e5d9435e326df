"""Taking events in: the next ones of the log, and deliveries that are due."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any

from sa_outbox.observe import BatchRead

from .item import Item
from .reading import Reader

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sa_outbox.listener import Listener

    from .lease import Lease
    from .progress import Progress
    from .shared import Shared
    from .turnstile import AnyLanes

_ONE_LANE = "all"
FOREVER = 100 * 366 * 86400.0
"""Seconds; the time of an event may be infinite, or so far that no interval leads there."""
UNREADABLE = 1.0
"""Seconds until a delivery is looked for again that is due and whose event is not in the log."""


class Intake:
    def __init__(
        self,
        shared: Shared,
        listener: Listener,
        lease: Lease,
        progress: Progress,
        lanes: AnyLanes,
    ) -> None:
        self._shared = shared
        self._listener = listener
        self._lease = lease
        self._progress = progress
        self._lanes = lanes
        self._total = listener.order == "total"
        self.reader = Reader(listener, shared.tables, lease.part, lease.count)
        self.read_look = 0
        """The look after which everything visible was taken in, or is about to be (``more``)."""
        self.more = False
        self.offered: Sequence[Any] = ()
        """Events that were read for all listeners, without a look."""
        self.occupied: set[str | None] = set()
        """Keys with a parked delivery: their new events go behind it. None: one without a key."""
        self.next_due: float | None = None
        self._taken: set[int] = set()
        """Deliveries with a row that are in the lanes or in hand."""

    async def refresh(self) -> None:
        """Ask which keys are occupied and when the next delivery is due.

        Asked by the pump between two of its writes, and only its writes add rows: so a key that
        has a row is always in ``occupied``. One that is in it and has none does no harm.
        """
        whose = {"listener": self._listener.name, "part": self._lease.part}
        connections, statements = self._shared.connections, self._shared.statements
        rows = await connections.rows(statements.occupied, **whose)
        self.occupied = {row[0] for row in rows}
        taken = list(self._taken)
        seconds = await connections.value(statements.next_due, **whose, taken=taken)
        self.next_due = None if seconds is None else monotonic() + max(0.0, seconds)

    @property
    def is_at_barrier(self) -> bool:
        """It is to be given back: what is saved has come to the barrier, or will have."""
        barrier, progress = self._lease.barrier, self._progress
        if barrier is None:
            return False
        done = progress.read_to >= barrier and not progress.unsettled
        return done or progress.saved.position >= barrier

    @property
    def waits_at_a_hole(self) -> bool:
        return self.reader.hole is not None

    @property
    def is_open(self) -> bool:
        """Whether ids that were passed may still appear, or one is waited for."""
        return self.waits_at_a_hole or bool(self._progress.holes)

    @property
    def has_looked(self) -> bool:
        """Not yet, or not since a reconnect: then nobody knows whether there is more."""
        return bool(self.read_look and self._shared.horizon.latest.number)

    def has_read_all(self, look: int) -> bool:
        """Everything visible at that look, the last one, was taken in, and nothing is open."""
        return 0 < look == self.read_look and not self.more and not self.is_open

    def may_meet_a_hole(self, look: int) -> bool:
        """With order="total", what is visible since that look is not all read."""
        return self._total and self.read_look < look

    def follow(self, parked: Item) -> list[Item]:
        """Those that wait in the lane of one that is parked go behind it; some have a row there.

        With ``order="total"`` only a replay is parked, and those of other keys do not wait for it.
        """
        waiting = self._lanes.remove(parked.lane)
        if self._total:
            others = [item for item in waiting if item.key is None or item.key != parked.key]
            waiting = [item for item in waiting if item.key is not None and item.key == parked.key]
            self._lanes.put_back(others)
        for item in waiting:
            item.fate = "behind"
            self.given_back(item)
        return [item for item in waiting if not item.state]

    def given_back(self, item: Item) -> None:
        self._taken.discard(item.position)

    def has_new(self, now: float) -> bool:
        """Whether a read may show something that was not taken in."""
        look = self._shared.horizon.latest
        if not look.number:
            return False
        waits_until = self.reader.waits_until()
        waited = waits_until is not None and now >= waits_until
        return self.more or look.number > self.read_look or waited

    def take_offered(self, room: int) -> list[Item]:
        """``take_new`` for events that were read already."""
        offered, self.offered = self.offered, ()
        if self._lease.barrier is not None:
            return []  # some may be above it
        return self._take(self.reader.take(offered, self._progress, room))

    async def take_new(self, room: int, now: float) -> list[Item]:
        """Read on in the log. Returns what becomes of events that are not to be handled now."""
        look = self._shared.horizon.latest
        if (barrier := self._lease.barrier) is not None:
            look = look.up_to(max(barrier, self._progress.read_to))
        rows, self.more = await self.reader.read(
            self._shared.connections, self._progress, look, room=room, now=now
        )
        self.read_look = look.number
        return self._take(rows)

    def _take(self, rows: Sequence[Any]) -> list[Item]:
        if not rows:
            return []
        self._shared.tell(BatchRead(self._listener.name, len(rows), rows[-1][0]))
        return [item for row in rows if (item := self._sort(row)) is not None]

    async def take_due(self, room: int) -> int:
        """Put deliveries that are due into the lanes, each with what is behind it."""
        rows = await self._shared.connections.rows(
            self._shared.statements.read_due,
            listener=self._listener.name,
            part=self._lease.part,
            limit=room,
            taken=list(self._taken),
        )
        count = 0
        for row in rows:
            if row[0] not in self._taken:
                self._taken.add(row[0])
                lane = row[0] if row["state"] == "scheduled" else self._lane(row)
                state = row["state"]
                self._lanes.put(Item(row, lane, attempts=row["attempts"], state=state))
                count += 1
        # Also for nothing: our clock may be faster than the database's, and the time is not there.
        await self.refresh()
        if not count and self.next_due is not None and self.next_due <= monotonic():
            self.next_due = monotonic() + UNREADABLE
        return count

    def _sort(self, row: Any) -> Item | None:
        """Put a new event into its lane, or return it with its fate."""
        wait = row["wait"]
        item = Item(row, self._lane(row))
        if wait is not None and wait > 0:
            item.fate, item.delay = "schedule", min(wait, FOREVER)
            return item
        if row[3] is not None and row[3] in self.occupied:
            item.fate = "behind"
            return item
        if row[0] == self._lease.retry_position:
            item.attempts = self._lease.retry_count
        self._lanes.put(item)
        return None

    def _lane(self, row: Any) -> object:
        if self._total:
            return _ONE_LANE
        key = row[3]
        return row[0] if key is None else key


class RangeIntake:
    """Of a range of a queue: all of it is in the lanes from the beginning, and nothing follows."""

    def __init__(self) -> None:
        self.more = self.is_open = self.waits_at_a_hole = False
        self.is_at_barrier = self.has_looked = False
        self.offered: Sequence[Any] = ()
        self.occupied: set[str | None] = set()
        self.next_due: float | None = None
        self.read_look = 0
        self.reader = self

    def waits_until(self) -> float | None:
        return None

    def has_new(self, _now: float) -> bool:
        return False

    def has_read_all(self, _look: int) -> bool:
        return False

    def may_meet_a_hole(self, _look: int) -> bool:
        return False

    def follow(self, _parked: Item) -> list[Item]:
        return []

    def given_back(self, item: Item) -> None:
        pass

    async def refresh(self) -> None:
        pass

    async def take_due(self, _room: int) -> int:
        return 0

    async def take_new(self, _room: int, _now: float) -> list[Item]:
        return []

    def take_offered(self, _room: int) -> list[Item]:
        return []
