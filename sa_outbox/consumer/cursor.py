"""One listener under one lease: read, hand out, settle, advance.

``run`` is the story. The pump reads what is next into lanes and settles what is finished; as many
hands as the listener has ``concurrency`` take events from the lanes and attempt them. The pump is
the only one that reads, and two hands never have events of one lane.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

import anyio

from sa_outbox.observe import CaughtUp

from .caution import Caution
from .gate import Bell
from .hand import Hand
from .intake import Intake, RangeIntake
from .lanes import Lanes, OneLane
from .outcomes import Outcomes
from .progress import Progress
from .settlement import Settlement

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sa_outbox.listener import Listener

    from .dispatch import Dispatch
    from .item import Item
    from .lease import Lease
    from .shared import Shared
    from .statements import Settling
    from .turnstile import AnyLanes


class Cursor:
    def __init__(self, shared: Shared, listener: Listener, lease: Lease) -> None:
        self.shared = shared
        self.listener = listener
        self.lease = lease
        self.progress = Progress(lease.position, lease.gaps, lease.revision)
        self.lanes = self._make_lanes()
        self.intake, statements = self._reading()
        self.settlement = Settlement(
            shared,
            lease,
            self.progress,
            statements,
            follow=self.intake.follow,
            after=self.settled,
        )
        self.outcomes = Outcomes(shared, listener)
        self.in_hand = 0
        """Events that hands have."""
        self.calls: list[Dispatch] = []
        """Of the hands, each its own."""
        self.caution = Caution(lease.crashes, listener)
        self.stopping = False
        self.slots: anyio.Semaphore | None = None
        """Shared by all ranges of a queue: together they run ``concurrency`` handlers."""
        self._changed = Bell()
        self._idle: list[anyio.Event] = []
        self._held: Item | None = None
        self._retry_at = 0.0
        self._refresh_at = 0.0
        self._told_of = -1
        self._enough = listener.batch_size // 2
        self._wanted_hands = listener.concurrency
        self._broken: BaseException | None = None

    def _make_lanes(self) -> AnyLanes:
        one_by_one = self.listener.concurrency == 1 and not self.listener.call.batch
        return OneLane() if one_by_one else Lanes()

    def _reading(self) -> tuple[Intake | RangeIntake, Settling]:
        """Where events come from, and what is written under the lease."""
        intake = Intake(self.shared, self.listener, self.lease, self.progress, self.lanes)
        return intake, self.shared.statements

    async def run(self) -> None:
        """Work until stopped. Raises :class:`LeaseLost`, or what the database raised."""
        if self.lease.retry_in is not None:
            self._retry_at = monotonic() + self.lease.retry_in
        error: Exception | None = None
        async with anyio.create_task_group() as hands:
            for _ in range(self._wanted_hands):
                hands.start_soon(Hand(self).run)
            try:
                await self._pump()
            except Exception as raised:  # noqa: BLE001 - raised below, outside of the group
                error = raised
            finally:
                hands.cancel_scope.cancel()
        if error is not None:
            raise error

    async def _pump(self) -> None:
        while True:
            self._check()
            if not self.stopping:
                await self._take_in()
            if self._is_worth_settling():
                await self.settlement.settle()
            if self.stopping and not self.in_hand:
                await self.settlement.settle()
                await self.settlement.save()
                return
            if self._has_caught_up():
                await self._rest()
            if self.caution.is_over:
                self.caution.is_over = False
                await self.settlement.forget_crashes()
            await self._changed.wait(self._pause())

    # What others ask for

    def wake(self) -> None:
        self._changed.ring()

    def look_for_due(self) -> None:
        """Somebody else may have made a delivery due: a replay."""
        self._refresh_at = 0.0
        self._changed.ring()

    def stop(self) -> None:
        """Begin no further event; ``run`` returns when those in hand are settled."""
        self.stopping = True
        self._changed.ring()

    def fail(self, error: BaseException) -> None:
        """End ``run`` with *error*."""
        self._broken = self._broken or error
        self._changed.ring()

    def has_drained(self, look: int, *, retries: bool) -> bool:
        """Everything visible at that look is settled; with *retries*, what waits for one too."""
        intake = self.intake
        if intake.read_look < look or intake.more or intake.waits_at_a_hole:
            return False
        if self.in_hand or self.settlement.finished or not self._refresh_at:
            return False
        if self._held is not None:
            return not retries
        if self.lanes.count or self.progress.unsettled:
            return False
        due = intake.next_due is not None and intake.next_due <= monotonic()
        return not due and not (retries and intake.occupied)

    # Taking in

    async def _take_in(self) -> None:
        now = monotonic()
        if self._held is not None and now >= self._retry_at:
            held, self._held = self._held, None
            self.lanes.free(held.lane)
        if now >= self._refresh_at:
            await self.intake.refresh()
            self._refresh_at = now + self.shared.save_every
        room = self._room()
        due = self.intake.next_due
        if room > 0 and due is not None and now >= due:
            room -= await self.intake.take_due(room)
        if room > 0 and self.intake.offered:
            self.settlement.add(self.intake.take_offered(room))
            self._want_hands()
            room = self._room()
        if room > 0 and self.intake.has_new(now):
            was_open = self.intake.is_open
            unattempted = await self.intake.take_new(room, now)
            self.settlement.add(unattempted)
            if not was_open and self.intake.is_open:
                # Until now nobody looks before the next poll, and a rollback notifies nobody.
                self.shared.look_again()
        self._want_hands()

    def _room(self) -> int:
        busy, size = self.lanes.count, self.caution.window
        if self.caution.is_on:
            busy += self.in_hand
            busy += len(self.settlement.finished)  # else the next batch is handled meanwhile
        elif not self.listener.call.batch:
            busy += self.in_hand
        elif self.in_hand > size:
            return 0  # one batch in hand: the next is read meanwhile; with more hands, not for each
        # A few at a time would be many small reads.
        return size - busy if busy <= size // 2 else 0

    def _want_hands(self) -> None:
        if self._holds_the_first():
            return
        for _ in range(min(self.lanes.ready, len(self._idle))):
            self._idle.pop().set()

    def _holds_the_first(self) -> bool:
        """After a change of holder: the event that failed before waits for its time first."""
        if self.lease.retry_position is None or self._held is not None:
            return False
        if monotonic() >= self._retry_at or self.listener.order != "total":
            return False
        item = self.lanes.take()
        if item is None:
            return False
        self.lanes.put_back([item])
        self._held = item
        return True

    # Settling

    def hand_idles(self, wanted: anyio.Event) -> None:
        """A hand found nothing to do; it waits for *wanted*."""
        self._idle.append(wanted)
        self._changed.ring()

    def done(self, item: Item) -> None:
        """``finish`` for one that is done: for most there is."""
        finished = self.settlement.finished
        if finished:
            finished.append(item)
            if len(finished) == self._enough:
                self._changed.ring()
        else:
            self.settlement.add((item,))
        self.lanes.free(item.lane)

    def finish(self, items: Sequence[Item]) -> None:
        """Attempts have ended and their fates are decided; they are to be settled.

        The lane of one that failed stays closed until that is written: a later event of its key
        must not be settled while the failure may still be forgotten by a crash.
        """
        self.settlement.add(items)
        failed = {item.lane for item in items if item.fate != "done"}
        free = self.lanes.free
        for item in items:
            if item.fate == "done" and item.lane not in failed:
                free(item.lane)
            elif item.fate == "hold":
                self.lanes.put_back([item])
        if len(self.settlement.finished) >= self._enough or failed:
            self._changed.ring()

    def committed(self, items: Sequence[Item]) -> None:
        """A hand has settled these itself, in its session's transaction."""
        for item in items:
            self.lanes.free(item.lane)
        self.settled(items)

    def settled(self, items: Sequence[Item]) -> None:
        """The fates of *items* are committed.

        A lane is freed once for each time it was handed out: freed again, two hands would have
        events of one key. Those that are done have freed theirs; those that go behind had none.
        """
        self.caution.settled(len(items))
        refresh = False
        held = {item.lane for item in items if item.fate == "hold"}
        for item in items:
            if item.fate == "done" and not item.state:
                continue  # most
            if item.state:
                self.intake.given_back(item)
                refresh = True
            match item.fate:
                case "hold":
                    self._held = item
                    self._retry_at = monotonic() + item.delay
                case "park" | "schedule":
                    refresh = True
                    if item.fate == "park" and item.key is not None:
                        self.intake.occupied.add(item.key)
                    if item.failure is not None:
                        self.lanes.free(item.lane)
                case "behind":
                    refresh = True
                case "dead" | "cancel":
                    if item.lane not in held:
                        self.lanes.free(item.lane)
                case _:
                    pass
        if refresh:
            self._refresh_at = 0.0
            self._changed.ring()
        self.outcomes.tell(items)
        self._want_hands()
        self.shared.progressed()

    def _check(self) -> None:
        if self._broken is not None:
            raise self._broken
        if self.lease.has_ended():
            raise self.lease.lost()

    def _is_worth_settling(self) -> bool:
        finished = self.settlement.finished
        if not finished:
            return False
        nothing_else = not self.in_hand and not self.lanes.ready
        enough = len(finished) >= self._enough
        late = monotonic() >= self.settlement.latest_at
        return nothing_else or enough or late or any(item.fate != "done" for item in finished)

    def _has_caught_up(self) -> bool:
        busy = self.in_hand or self.settlement.finished or self.lanes.count or self._held
        return not busy and not self.intake.has_new(monotonic())

    async def _rest(self) -> None:
        due = self.intake.next_due
        if (due is None or due > monotonic()) and self.intake.has_looked:
            self.caution.caught_up()
        if self._told_of != self.progress.read_to:
            self._told_of = self.progress.read_to
            self.shared.tell(CaughtUp(self.listener.name, self.progress.read_to))
        if monotonic() >= self.settlement.save_at:
            await self.settlement.save()
        self.shared.progressed()

    def _pause(self) -> float | None:
        """How long there is nothing to do, unless somebody rings. Only times at which the pump
        will do something are among them: one that has passed would make it spin."""
        times = [self.settlement.latest_at] if self.settlement.finished else []
        if not self.stopping:
            times.append(self._refresh_at)
            times += [self._retry_at] if self._held is not None else []
            if self._room() > 0:
                intake = self.intake
                wakeups = (intake.next_due, intake.reader.waits_until())
                times += [each for each in wakeups if each is not None]
                times += [0.0] if intake.more else []
            if self._has_caught_up():
                times.append(self.settlement.save_at)
            if self.lanes.ready_at is not None:
                times.append(self.lanes.ready_at)
        return max(0.0, min(times) - monotonic()) if times else None
