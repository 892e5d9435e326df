"""Offers new events to idle listeners, reads the horizon, and wakes every loop: whenever something
may have changed."""

from __future__ import annotations

from random import uniform
from typing import TYPE_CHECKING

import anyio
from anyio import TASK_STATUS_IGNORED

from sa_outbox.observe import Place, Woken

from ..connection.errors import is_database_error
from ..shared.outage import Outage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from anyio.abc import TaskStatus

    from ..loop.log_source import LogSource
    from ..loop.loop import DeliveryLoop
    from ..position.horizon import HorizonSnapshot
    from ..services.horizon_reader import HorizonReader
    from ..services.verification import Verification
    from ..shared.context import ConsumerContext
    from ..shared.sync import By
    from .workload import Workload

MIN_HOLE_POLL_SECONDS, MAX_HOLE_POLL_SECONDS = 0.002, 0.25
"""Seconds between two reads while order="total" stands at a hole: a rollback notifies nobody."""
HOLES_POLL_SECONDS = 1.0
"""Seconds between two reads of the horizon while other listeners have holes open: to forget those
that were rolled back."""
HANDLER_TURNS = 4
"""Turns of the event loop until a handler has started: sending a statement earlier would delay
it."""


class HorizonWatcher:
    """Waits for a ring or for the next poll, has the horizon read, and wakes every loop."""

    def __init__(
        self,
        context: ConsumerContext,
        reader: HorizonReader,
        workload: Workload,
        verification: Verification,
        poll_interval: Callable[[], float],
    ) -> None:
        self._context = context
        self._reader = reader
        self._workload = workload
        self._loops, self._queues = workload.holder.loops, workload.queues
        self._verification = verification
        self._poll_interval = poll_interval
        self._outage = Outage(Place("horizon"), context.observers.emit)

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        task_status.started()
        self._context.bell.ring("start")
        with self._context.continuity.compared():
            await self._read_again_and_again()

    async def _read_again_and_again(self) -> None:
        pause = MIN_HOLE_POLL_SECONDS
        while True:
            rung = await self._context.bell.wait(self._until_next_read(pause))
            if not self._loops and not self._queues:
                continue
            by = rung or ("open events" if _wait_at_a_hole(self._loops.values()) else "poll")
            snapshot = await self._read(is_rung=rung is not None)
            if snapshot is not None:
                is_quiet = rung is None and snapshot.final < snapshot.ceiling
                longer = min(2 * pause, MAX_HOLE_POLL_SECONDS)
                pause = longer if is_quiet else MIN_HOLE_POLL_SECONDS
                self._wake(by, snapshot)

    async def _read(self, *, is_rung: bool) -> HorizonSnapshot | None:
        """None, after a pause: the database is away."""
        try:
            if is_rung:
                await self._deliver_ahead()
            snapshot = await self._reader.read()
        except Exception as error:
            if not is_database_error(error):
                raise
            await anyio.sleep(self._outage.goes_on(error))
            self._context.bell.ring("reconnect")
            return None
        if self._outage.is_away:
            self._outage.ends()
            self._verification.bell.ring()
        return snapshot

    async def _deliver_ahead(self) -> None:
        """Offer new events, before the horizon is read, to those who had read everything up to the
        latest snapshot: they begin at once."""
        number = self._context.horizon.latest.number
        waiting = [each for each in self._loops.values() if each.source.new.are_all_final(number)]
        queues = self._queues
        resting = {queue: at for queue in queues if (at := queue.rests_at(number)) is not None}
        stands = [*(each.progress.read_to for each in waiting), *resting.values()]
        if not stands:
            return
        rows = await self._reader.first_few(min(stands))
        if not rows:
            return
        for loop in waiting:
            loop.source.new.offer(rows)
            loop.wake()
        for queue in resting:
            queue.offer(rows)
        for _ in range(HANDLER_TURNS):
            await anyio.lowlevel.checkpoint()

    def _wake(self, by: By, snapshot: HorizonSnapshot) -> None:
        self._context.observers.emit(Woken(by))
        if by in ("poll", "reconnect"):  # what a notification would have said
            self._workload.look_for_requests()
            self._workload.look_for_due()
        for loop in self._loops.values():
            if loop.source.new.show_more(snapshot):
                loop.wake()
        for queue in self._queues:
            queue.wake()
        self._context.progressed()

    def _until_next_read(self, pause: float) -> float:
        loops, latest = self._loops.values(), self._context.horizon.latest
        have_holes = [each for each in loops if each.source.new.are_open]
        if _wait_at_a_hole(have_holes):
            return pause
        interval = self._poll_interval()
        # A cursor finds out that there is a hole when it reads, which is after this.
        is_open = latest.final < latest.ceiling
        if is_open and any(loop.source.new.may_meet_a_hole(latest.number) for loop in loops):
            return min(MAX_HOLE_POLL_SECONDS, interval)
        if is_open or have_holes:
            return min(HOLES_POLL_SECONDS, interval)
        return interval * uniform(0.9, 1.0)  # noqa: S311 - processes should not poll in step


def _wait_at_a_hole(loops: Iterable[DeliveryLoop[LogSource]]) -> bool:
    return any(loop.source.new.wait_at_a_hole for loop in loops)
