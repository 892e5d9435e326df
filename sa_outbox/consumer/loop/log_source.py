"""The log as a source: its next events, and deliveries that are due."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any

from sa_outbox.observe import BatchRead

from ..connection.errors import Doubted
from ..fault.refusals import ReadRefused, unreadable
from ..handler.delivery import InFlight
from .due import DueDeliveries, can_be_read
from .isolation import Isolation
from .lanes import Lanes, OneLane
from .reader import Reader

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sa_outbox.declare.listener import Listener

    from ..fault.quarantine import CrashQuarantine
    from ..lease.lease import Lease
    from ..position.progress import Progress
    from ..shared.context import ConsumerContext
    from .limits import AnyLanes
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
        self.statements = context.statements
        self._order_mode = listener.order_mode
        self._lane = listener.order_mode.lane
        one_by_one = listener.concurrency == 1 and not listener.call.batch
        self.lanes: AnyLanes = OneLane() if one_by_one else Lanes()
        self._refusals = context.refused(listener.name)
        self._reader = Reader(listener, context.tables, lease.part, lease.count, self._refusals)
        self.due = DueDeliveries(context, listener, lease, self._reader.reads)
        self._read_snapshot = 0
        """Number of the snapshot whose events were taken in, or are about to be (``_more``)."""
        self._more = False
        self._offered: Sequence[Any] = ()
        self._taken_over_at: float | None = None
        """By the database's clock, or a little later; asked for when it is needed."""

    async def begin(self) -> Sequence[InFlight]:
        return ()

    # Taking in

    async def take_in(self, intake: Intake) -> None:
        try:
            await self._take_in(intake)
        except ReadRefused as refused:
            name = self._listener.name
            await Isolation(self._context, name, self._refusals).of_read(refused)
            intake.wake()

    async def _take_in(self, intake: Intake) -> None:
        now = monotonic()
        if now >= self.due.refresh_at:
            await self.due.refresh()
            self._context.progressed()  # a drain waits until it is known what is due
            now = monotonic()  # what was found due is due by now
        room, quarantine = intake.room(), self._quarantine
        if room > 0 and quarantine.is_on and quarantine.wants_rows:
            room -= await self._take_suspects(intake, room)
        # Before the first snapshot, and since a reconnect, nobody knows whether anything is new.
        may_have_new = self.has_new(now) or not self._context.horizon.latest.number
        of_it = quarantine.due(room, has_new=may_have_new)
        if of_it > 0 and self.due.has_one(now):
            room -= self._take_rows(intake, await self.due.take(of_it))
        if room > 0 and self._offered:
            intake.settle_unattempted(self._take_offered(room))
            intake.start_ready()
            room = intake.room()
        if room > 0 and self.has_new(now):
            was_open = self.is_open
            intake.settle_unattempted(await self._take_new(room, now))
            if not was_open and self.is_open:
                # Until now nobody reads before the next poll, and a rollback notifies nobody.
                self._context.bell.ring("open events")
        intake.start_ready()

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
                lane = row[0] if state == "scheduled" else self._lane(row[3], row[0])
                self.lanes.put(InFlight(row, lane, attempts=row["attempts"], state=state))
            else:
                refused.append(self._unreadable(row))
        intake.settle_unattempted(refused)
        return len(rows) - len(refused)

    def _take_offered(self, room: int) -> list[InFlight]:
        offered, self._offered = self._offered, ()
        if self._lease.barrier is not None:
            return []  # some may be above it
        return self._sort_all(self._reader.take(offered, self._progress, room))

    async def _take_new(self, room: int, now: float) -> list[InFlight]:
        """Read on in the log. Returns what becomes of events that are not to be handled now."""
        snapshot = self._context.horizon.latest
        if (barrier := self._lease.barrier) is not None:
            snapshot = snapshot.up_to(max(barrier, self._progress.read_to))
        steady = self._context.continuity.steady(self._context.connections)
        try:
            rows, self._more = await self._reader.read(
                steady, self._progress, snapshot, room=room, now=now
            )
        except Doubted:
            return []  # another snapshot comes
        self._read_snapshot = snapshot.number
        return self._sort_all(rows)

    def _sort_all(self, rows: Sequence[Any]) -> list[InFlight]:
        if not rows:
            return []
        self._context.emit(BatchRead(self._listener.name, len(rows), rows[-1][0]))
        return [item for row in rows if (item := self._sort(row)) is not None]

    def _sort(self, row: Any) -> InFlight | None:
        """Put a new event into its lane, or return it with what becomes of it."""
        if not can_be_read(row):
            return self._unreadable(row)
        wait = row["wait"]
        item = InFlight(row, self._lane(row[3], row[0]))
        if wait is not None and wait > 0:
            item.outcome, item.delay = "schedule", min(wait, FOREVER_SECONDS)
            return item
        if row[3] is not None and row[3] in self.due.occupied:
            item.outcome = "behind"
            return item
        if row[0] == self._lease.retry_position:
            item.attempts = self._lease.retry_count
        self.lanes.put(item)
        return None

    def _unreadable(self, row: Any) -> InFlight:
        return unreadable(row, self._lane(row[3], row[0]), self._refusals, self._context.redact)

    # What the loop asks

    def has_new(self, now: float) -> bool:
        snapshot = self._context.horizon.latest
        if not snapshot.number:
            return False
        waits_until = self._reader.waits_until()
        waited = waits_until is not None and now >= waits_until
        return self._more or snapshot.number > self._read_snapshot or waited

    def next_at(self, *, has_room: bool) -> float | None:
        times = [self.due.refresh_at]
        if has_room:
            wakeups = (self.due.next_at, self._reader.waits_until())
            times += [each for each in wakeups if each is not None]
            times += [0.0] if self._more else []
        return min(times)

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
        if self._order_mode.is_one_at_a_time:
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
        has_read = self._read_snapshot and self._context.horizon.latest.number
        if has_read and not self.due.has_one(monotonic()):
            self._quarantine.caught_up()

    def wake(self) -> None:
        pass

    def withdraw(self, position: int) -> None:  # noqa: ARG002 - see the protocol
        """Nobody cancels a delivery of an ordered listener that may have begun."""
        return

    # What others ask

    def look_for_due(self) -> None:
        """Somebody else may have made a delivery due: a replay."""
        self.due.forget()

    def offer(self, rows: Sequence[Any]) -> None:
        """Events that were read for all listeners, before the horizon is asked."""
        self._offered = rows

    def has_taken_in(self, number: int) -> bool:
        """Everything visible at snapshot *number* was taken in, and it is known what is due."""
        is_read = self._read_snapshot >= number and not self._more and not self.waits_at_a_hole
        return is_read and self.due.refresh_at > 0

    def has_due(self, *, retries: bool) -> bool:
        """Whether deliveries are due; with *retries*, also whether one waits for its time."""
        return self.due.has_one(monotonic()) or (retries and bool(self.due.occupied))

    @property
    def is_at_barrier(self) -> bool:
        barrier, progress = self._lease.barrier, self._progress
        if barrier is None:
            return False
        done = progress.read_to >= barrier and not progress.unsettled
        return done or progress.saved.position >= barrier

    @property
    def waits_at_a_hole(self) -> bool:
        return self._reader.hole is not None

    @property
    def is_open(self) -> bool:
        """Whether ids that were passed may still appear, or one is waited for."""
        return self.waits_at_a_hole or bool(self._progress.holes)

    def has_read_all(self, number: int) -> bool:
        """Everything visible at snapshot *number*, the last one, was read, and nothing is open."""
        return 0 < number == self._read_snapshot and not self._more and not self.is_open

    def may_meet_a_hole(self, number: int) -> bool:
        """Whether it has yet to read what snapshot *number* showed, and would wait at a hole."""
        return self._order_mode.waits_at_holes and self._read_snapshot < number
