"""The log as a source: its next events, and deliveries that are due."""

from __future__ import annotations

from functools import partial
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any

from sa_outbox.event.row import ID, KEY, PAYLOAD, WAIT
from sa_outbox.observe import BatchRead

from ..fault.quarantine import CrashQuarantine
from ..fault.refusals import ReadRefused, unreadable
from ..handler.delivery import InFlight
from ..lanes.lanes import Lanes, OneLane
from ..position.progress import Progress
from .due import DueDeliveries, can_be_read
from .isolation import Isolation
from .loop import DeliveryLoop
from .new_events import NewEvents
from .reader import Reader

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sa_outbox.declare.listener import Listener

    from ..connection.statements import Statements
    from ..lanes.limits import AnyLanes
    from ..lease.lease import Lease
    from ..shared.context import ConsumerContext
    from .source import Intake

FOREVER_SECONDS = 100 * 366 * 86400.0
"""The time of an event may be infinite, or so far away that no interval leads there."""


class LogSource:
    """The next events of the log, and deliveries that are due."""

    size = None
    is_finished = False

    def __init__(
        self,
        context: ConsumerContext,
        listener: Listener,
        lease: Lease,
        progress: Progress,
        quarantine: CrashQuarantine,
    ) -> None:
        self._context = context
        self._listener = listener
        self._lease = lease
        self._progress = progress
        self._quarantine = quarantine
        self.statements: Statements = context.statements
        self._is_one_at_a_time = listener.order_mode.is_one_at_a_time
        self._lane = listener.order_mode.lane
        one_by_one = listener.concurrency == 1 and not listener.call.batch
        self.lanes: AnyLanes = OneLane() if one_by_one else Lanes()
        self._refusals = context.refusals[listener.name]
        reader = Reader(listener, context.tables, lease.part, lease.count, self._refusals)
        self.new: NewEvents = NewEvents(
            reader, lease, progress, context.horizon, context.continuity, context.connections
        )
        self.due: DueDeliveries = DueDeliveries(context, listener, lease, reader.reads)
        self._taken_over_at: float | None = None
        """By the database's clock, or a little later; asked for when it is needed."""

    async def begin(self) -> Sequence[InFlight]:
        return ()

    @property
    def inflow(self) -> LogSource:
        return self

    # Taking in

    async def take_in(self, intake: Intake, room: int) -> None:
        now = monotonic()
        if now >= self.due.refresh_at:
            await self.due.refresh()
            self._context.progressed()  # a drain waits until it is known what is due
            now = monotonic()  # what was found due is due by now
        if room > 0:
            try:
                await self._fill(intake, room, now)
            except ReadRefused as refused:
                name = self._listener.name
                await Isolation(self._context, name, self._refusals).of_read(refused)
                intake.wake()

    async def _fill(self, intake: Intake, room: int, now: float) -> None:
        quarantine = self._quarantine
        if quarantine.is_on and quarantine.wants_rows:
            room -= await self._take_suspects(intake, room)
        if self.due.next_at <= now:
            of_it = room
            if quarantine.is_on:
                # Before the first snapshot nobody knows whether there is something new.
                has_new = self.new.are_there(now) or not self._context.horizon.latest.number
                of_it = quarantine.due(room, has_new=has_new)
            if of_it > 0:
                room -= self._take_rows(intake, await self.due.take(of_it))
        if room <= 0:
            return
        offered = self.new.take_offered(room)
        if offered:
            self._sort_all(intake, offered)
        elif self.new.are_there(now):
            await self._take_new(intake, room, now)

    async def _take_new(self, intake: Intake, room: int, now: float) -> None:
        """Read on in the log."""
        was_open = self.new.are_open
        rows, age = await self.new.take(room, now)
        self._sort_all(intake, rows, age)
        if not was_open and self.new.are_open:
            # Until now nobody reads before the next poll, and a rollback notifies nobody.
            self._context.bell.ring("open events")
        if not self._quarantine.is_on and self.new.starts_ahead(now):
            intake.start(partial(self._read_ahead, intake))

    async def _read_ahead(self, intake: Intake) -> None:
        await self.new.read_ahead(self._quarantine.window)
        intake.wake()

    async def _take_suspects(self, intake: Intake, room: int) -> int:
        """What has a row and can have been in flight when a process died, before all others."""
        quarantine, progress = self._quarantine, self._progress
        if quarantine.alone:
            rows = await self.due.take_suspects(room, quarantine.suspects)
        else:
            since = self._taken_over_at
            if since is None:
                connections, statements = self._context.connections, self._context.statements
                since = float(await connections.value(statements.suspects.clock))
                self._taken_over_at = since
            rows = await self.due.take_earlier(room, since)
        if not rows and not self.due.has_suspects:
            quarantine.no_rows_left(
                lambda each: (
                    each > progress.read_to or each in progress.unsettled or each in progress.holes
                )
            )
        return self._take_rows(intake, rows)

    def _take_rows(self, intake: Intake, rows: Sequence[Any]) -> int:
        """Put deliveries with a row into the lanes. Returns how many; those that can't be read are
        to be settled."""
        refused: list[InFlight] = []
        for row in rows:
            if can_be_read(row):
                state = row["state"]
                lane = row[ID] if state == "scheduled" else self._lane(row[KEY], row[ID])
                self.lanes.put(InFlight(row, lane, attempts=row["attempts"], state=state))
            else:
                refused.append(self._unreadable(row))
        intake.settle_unattempted(refused)
        return len(rows) - len(refused)

    def _sort_all(self, intake: Intake, rows: Sequence[Any], age: float = 0.0) -> None:
        """Put new events, read *age* seconds ago, into their lanes; what is not to be handled now
        is to be settled."""
        if not rows:
            return
        self._context.observers.emit(BatchRead(self._listener.name, len(rows), rows[-1][ID]))
        if not self._is_ordinary(rows):
            others = [item for row in rows if (item := self._sort(row, age)) is not None]
            intake.settle_unattempted(others)
            return
        lane = self._lane
        self.lanes.put_all([InFlight(row, lane(row[KEY], row[ID])) for row in rows])

    def _is_ordinary(self, rows: Sequence[Any]) -> bool:
        """Whether each of them may be handled now, and is the first attempt: nearly always."""
        held = self._lease.retry_position
        if self.due.occupied or (held is not None and rows[0][ID] <= held <= rows[-1][ID]):
            return False
        if None in [row[PAYLOAD] for row in rows]:
            return False
        return [row[WAIT] for row in rows].count(None) == len(rows)

    def _sort(self, row: Any, age: float) -> InFlight | None:
        """Put a new event into its lane, or return it with what becomes of it."""
        if not can_be_read(row):
            return self._unreadable(row)
        item = InFlight(row, self._lane(row[KEY], row[ID]))
        if row[WAIT] is not None and row[WAIT] > age:
            item.outcome, item.delay = "schedule", min(row[WAIT] - age, FOREVER_SECONDS)
            return item
        if row[KEY] is not None and row[KEY] in self.due.occupied:
            item.outcome = "behind"
            return item
        if row[ID] == self._lease.retry_position:
            item.attempts = self._lease.retry_count
        self.lanes.put(item)
        return None

    def _unreadable(self, row: Any) -> InFlight:
        return unreadable(row, self._lane(row[KEY], row[ID]), self._refusals, self._context.redact)

    # What the loop asks

    def has_new(self, now: float) -> bool:
        return self.new.are_there(now)

    def next_at(self, *, has_room: bool) -> float:
        times = [self.due.refresh_at]
        if has_room:
            next_new_at = self.new.next_at()
            times += [self.due.next_at, inf if next_new_at is None else next_new_at]
        return min(times)

    async def close(self) -> None:
        await self.new.close()

    def settled(self, items: Sequence[InFlight]) -> bool:
        changed = False
        for item in items:
            if item.state:
                self.due.given_back(item)
                changed = True
            if item.outcome == "park":
                self.due.occupied.add(item.key)
            changed = changed or item.outcome in ("park", "schedule", "behind")
        if changed:
            self.due.changed()
        return changed

    def follow(self, parked: InFlight) -> list[InFlight]:
        """Those that wait in the lane of one that is parked go behind it; some have a row there.

        Where all share one lane, those of other keys do not wait for it.
        """
        waiting = self.lanes.remove(parked.lane)
        if self._is_one_at_a_time:
            others = [item for item in waiting if item.key is None or item.key != parked.key]
            waiting = [item for item in waiting if item.key is not None and item.key == parked.key]
            self.lanes.put_back(others)
        for item in waiting:
            item.outcome = "behind"
            self.due.given_back(item)
        return [item for item in waiting if not item.state]

    def unfollow(self, followed: list[InFlight]) -> None:
        """These wait in the lane again."""
        for item in followed:
            item.outcome = "done"
        self.lanes.put_back(followed)

    def caught_up(self) -> None:
        if not self._quarantine.is_on:
            return
        if self.new.have_been_read and self.due.next_at > monotonic():
            self._quarantine.caught_up()

    def withdraw(self, position: int) -> None:  # noqa: ARG002 - see the protocol
        """Nobody cancels a delivery of an ordered listener that may have begun."""
        return

    # What others ask

    def look_for_due(self) -> None:
        """Somebody else may have made a delivery due: a replay."""
        self.due.forget()

    def has_taken_in(self, number: int) -> bool:
        """Everything visible at that snapshot was taken in, and it is known what is due."""
        return self.new.are_all_taken(number) and self.due.refresh_at > 0

    def has_due(self, *, retries: bool) -> bool:
        """Whether deliveries are due; with *retries*, also whether one waits for its time."""
        return self.due.next_at <= monotonic() or (retries and bool(self.due.occupied))

    @property
    def is_at_barrier(self) -> bool:
        barrier, progress = self._lease.barrier, self._progress
        if barrier is None:
            return False
        done = progress.read_to >= barrier and not progress.unsettled
        return done or progress.saved.position >= barrier


def log_loop(context: ConsumerContext, listener: Listener, lease: Lease) -> DeliveryLoop[LogSource]:
    """The loop of a listener whose cursor is in the log."""
    progress = Progress(lease.position, lease.gaps, lease.revision)
    quarantine = CrashQuarantine(lease.crashes, lease.suspects, listener)
    source = LogSource(context, listener, lease, progress, quarantine)
    return DeliveryLoop(context, listener, lease, progress, quarantine, source)
