"""What the tasks of one loop share, and what they ask of it.

A loop makes one and gives it to its tasks: they take from its lanes, and report here what they
begin, what has ended, and what they have settled themselves. What comes of a commit is done here
too: lanes are free again, and whoever waits for them is woken.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from ..connection.errors import is_unreachable
from ..lanes.held import HeldDelivery
from ..lanes.ration import rationed
from ..settle.buffer import SettlementBuffer
from ..settle.outcome import Outcomes
from ..shared.sync import AutoResetEvent

if TYPE_CHECKING:
    from collections.abc import Sequence

    import anyio

    from sa_outbox.declare.listener import Listener

    from ..fault.quarantine import CrashQuarantine
    from ..handler.delivery import InFlight
    from ..lanes.limits import AnyLanes
    from ..lanes.ration import RationedLanes
    from ..lease.lease import Lease
    from ..position.progress import Progress
    from ..shared.context import ConsumerContext
    from .source import Source


class Port:
    def __init__(
        self,
        context: ConsumerContext,
        listener: Listener,
        lease: Lease,
        progress: Progress,
        quarantine: CrashQuarantine,
        source: Source,
    ) -> None:
        self.context = context
        self.listener = listener
        self.lease = lease
        self.progress = progress
        self.quarantine = quarantine
        self.lanes: AnyLanes | RationedLanes = rationed(source.lanes, context.limit, listener.name)
        holds = listener.order_mode.after_failure == "hold"
        self.held: HeldDelivery | None = HeldDelivery(lease, self.lanes) if holds else None
        self.settlement: SettlementBuffer = SettlementBuffer(
            context,
            lease,
            progress,
            source.statements,
            follow=source.follow,
            unfollow=source.unfollow,
            after=self._settled,
        )
        self.outcomes: Outcomes = Outcomes(context, listener)
        self.changed: AutoResetEvent = AutoResetEvent()
        """Rung when the loop has something to do."""
        self.is_stopping: bool = False
        self.in_flight: int = 0
        """Deliveries that tasks have."""
        self.broken: BaseException | None = None
        """What a task could not deal with."""
        self.ended_by: Exception | None = None
        """What has ended the loop."""
        self.outage: BaseException | None = None
        """What the database raised, when that has ended the loop."""
        self.looked_at: float = 0.0
        """When idle tasks were last woken for what was ready."""
        self._source = source
        self._refusals = context.refusals[listener.name]
        self._enough = listener.batch_size // 2
        self._idle: list[anyio.Event] = []

    # What tasks ask for

    def began(self, count: int) -> None:
        self.in_flight += count

    def ended(self, count: int) -> None:
        self.in_flight -= count

    def idle(self, wanted: anyio.Event) -> None:
        """A task found nothing to do; it waits for *wanted*."""
        self._idle.append(wanted)
        self.changed.ring()

    def stop(self) -> None:
        """Begin no further delivery."""
        self.is_stopping = True
        self.changed.ring()

    def fail(self, error: BaseException) -> None:
        """End the loop with *error*."""
        self.broken = self.broken or error
        self.changed.ring()

    def done(self, item: InFlight) -> None:
        """``finish`` for one that succeeded, as nearly all do."""
        finished = self.settlement.finished
        if finished:
            finished.append(item)
            if len(finished) == self._enough:
                self.changed.ring()
        else:
            self.settlement.add((item,))
        self.lanes.free(item.lane)

    def finish(self, items: Sequence[InFlight]) -> None:
        """Attempts have ended and their outcomes are decided; they are to be settled.

        The lane of one that failed stays closed until that is written: a later event of its key
        must not be settled while the failure may still be forgotten by a crash.
        """
        self.settlement.add(items)
        failed = {item.lane for item in items if item.outcome != "done"}
        free = self.lanes.free
        for item in items:
            if item.outcome == "done" and item.lane not in failed:
                free(item.lane)
            elif item.outcome == "hold":
                self.lanes.put_back([item])
        if len(self.settlement.finished) >= self._enough or failed:
            self.changed.ring()

    def committed(self, items: Sequence[InFlight], failed: InFlight | None = None) -> None:
        """A task has settled these itself, in its session's transaction. Its *failed* one, which
        came after them, is not settled yet: until it is, nothing of its lane may be taken."""
        lanes = self.lanes
        for item in items:
            if failed is None or not (lanes.is_one or item.lane == failed.lane):
                lanes.free(item.lane)
        self._settled(items)

    # What the loop asks for

    def end(self, error: Exception) -> None:
        """*error* has ended the loop: its tasks are about to be cancelled."""
        self.ended_by = error
        self.outage = error if is_unreachable(error) else None

    def settle_each(self, count: int) -> None:
        """What is finished is settled when this is its count."""
        self._enough = count

    @property
    def is_worth_settling(self) -> bool:
        finished = self.settlement.finished
        if not finished:
            return False
        if len(finished) >= self._enough or monotonic() >= self.settlement.latest_at:
            return True
        if any(item.outcome != "done" for item in finished):
            return True
        return not self.in_flight and not self.lanes.ready

    def start_ready(self) -> None:
        """Wake as many idle tasks as there are lanes to take from."""
        self.looked_at = monotonic()
        if self.held is not None and self.held.holds_the_first():
            return
        if self._idle:
            for _ in range(min(self.lanes.ready, len(self._idle))):
                self._idle.pop().set()

    def _settled(self, items: Sequence[InFlight]) -> None:
        """The outcomes of *items* are committed."""
        if self.quarantine.is_on:
            self.quarantine.settled(items)
        if self.settlement.notes.noted:
            self.settlement.notes.absolve(items)
        others = [item for item in items if item.outcome != "done" or item.state]
        if others:
            for lane in freed_lanes(others):
                self.lanes.free(lane)
            if self.held is not None:
                self.held.hold_one_of(others)
            if self._source.settled(others):
                self.changed.ring()
        if self._refusals.known:
            self._refusals.settled(items)
        self.outcomes.emit(items)
        for tally in self.context.tallies:
            tally.settled(self.listener.name, items)
        if self.context.outages.watches:
            positions = (item.position for item in items)
            self.context.outages.settled(self.listener.name, positions)
        if self._source.is_finished:
            self.lease.is_over = True
            self.stop()
        else:
            self.start_ready()
        self.context.progressed()


def freed_lanes(items: Sequence[InFlight]) -> list[object]:
    """The lanes that are free once *items* are settled.

    A lane is freed once for each time it was handed out: freed again, two tasks would have events
    of one key. Those that are done have freed theirs; those that go behind had none.
    """
    held = {item.lane for item in items if item.outcome == "hold"}
    freed: list[object] = []
    for item in items:
        match item.outcome:
            case "park" | "schedule" if item.failure is not None:
                freed.append(item.lane)
            case "dead" | "cancel" if item.lane not in held and not item.aside:
                freed.append(item.lane)
            case _:
                pass
    return freed
