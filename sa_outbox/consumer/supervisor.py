"""What runs beside the listeners: the looks, the leases, the verification, LISTEN."""

from __future__ import annotations

from random import uniform
from time import monotonic
from typing import TYPE_CHECKING, Literal

import anyio

from sa_outbox.observe import LeasesKept, Woken

from .connection.errors import is_database_error
from .fast_path import deliver_ahead_of_horizon
from .loop.holder import RELEASE_SECONDS
from .memory import Memory
from .shared.outage import Outage
from .shared.sync import AutoResetEvent

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from .loop.holder import HeldLeases
    from .loop.log_source import LogSource
    from .queue.queue import Queue
    from .services.crons import CronService
    from .services.horizon_watch import HorizonWatcher
    from .services.lease_coordinator import LeaseCoordinator
    from .services.verification import Verification
    from .services.wakeup import Wakeup
    from .shared.context import ConsumerContext
    from .upkeep.service import MaintenanceService

MIN_HOLE_POLL_SECONDS, MAX_HOLE_POLL_SECONDS = 0.002, 0.25
"""Seconds between two looks while order="total" stands at a hole: a rollback notifies nobody."""
HOLES_POLL_SECONDS = 1.0
"""Seconds between two reads of the horizon while other listeners have holes open: to forget those
that were rolled back."""
BARRIER_POLL_SECONDS = 0.1
"""Seconds between two surveys while a cursor is on its way to a barrier, or waits at it."""
MAX_PAUSE_SECONDS = 5.0

By = Literal["start", "notify", "poll", "reconnect", "open events"]


class Supervisor:
    def __init__(
        self,
        shared: ConsumerContext,
        leasing: LeaseCoordinator,
        looker: HorizonWatcher,
        verifying: Verification,
    ) -> None:
        self.shared = shared
        self.leasing = leasing
        self.holder: HeldLeases[LogSource]
        self.queues: list[Queue] = []
        self.wakeup: Wakeup | None = None
        self.ticking: CronService | None = None
        self.retention: MaintenanceService | None = None
        self._looker = looker
        self.verifying = verifying
        self._look_bell = AutoResetEvent()
        self._woken_by: By = "start"
        self.memory = Memory(self)
        looker.compare, looker.start_over = self.memory.compare, self.memory.start_over
        shared.continuity.doubted = self._doubted

    def ring(self, by: By) -> None:
        """Look again, soon."""
        self._woken_by = by
        self._look_bell.ring()

    def released(self) -> None:
        """Another process has given something back, or a person has changed something."""
        self.leasing.bell.ring()
        self._wake_queues()
        self._look_for_due()

    def look_for_requests(self) -> None:
        """Somebody has cancelled an event that was taken, perhaps by us."""
        for queue in self.queues:
            queue.look_for_requests()

    def reconnected(self, after_trouble: bool) -> None:  # noqa: FBT001 - a callback
        """The LISTEN connection is new: what was missed is looked for. *after_trouble*, the server
        may be another one than at the start."""
        if after_trouble:
            self.verifying.bell.ring()
            self.shared.continuity.doubt()
        self.leasing.bell.ring()
        self.ring("reconnect")

    def lost_notifications(self) -> None:
        """Nobody tells of events any more: from now on it is looked for them often."""
        self.leasing.bell.ring()
        self.ring("poll")

    def stop(self) -> None:
        """Begin nothing new."""
        self.leasing.is_closing = True
        self.holder.stop()
        for queue in self.queues:
            queue.holder.stop()
            queue.bell.ring()

    def cancel(self) -> None:
        """Cancel what still runs; its leases are given back."""
        self.holder.cancel()
        for queue in self.queues:
            queue.holder.cancel()
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

    async def start(self, tasks: TaskGroup) -> None:
        """Claim what is free, then start everything in *tasks*."""
        await self.leasing.announce()
        await self.leasing.notify_others()  # those who came first have something for us
        await self._claim(tasks)
        tasks.start_soon(self.shared.alibis.pulse.run)
        tasks.start_soon(self._keep_looking)
        tasks.start_soon(self._keep_leases, tasks)
        tasks.start_soon(self.verifying.run)
        for queue in self.queues:
            tasks.start_soon(queue.run, tasks)
        if self.queues:
            self.ring("start")  # a cursor does so when it is claimed
        if self.wakeup is not None:
            tasks.start_soon(self.wakeup.run)
        if self.retention is not None:
            tasks.start_soon(self.retention.run)
        if self.ticking is not None:
            await tasks.start(self.ticking.run)

    # The looks

    async def _keep_looking(self) -> None:
        try:
            await self._look_again_and_again()
        finally:
            self.shared.continuity.close()

    async def _look_again_and_again(self) -> None:
        pause = MIN_HOLE_POLL_SECONDS
        outage = Outage("horizon", self.shared.emit)
        while True:
            rung = await self._look_bell.wait(self._until_next_look(pause))
            if not self.holder.loops and not self.queues:
                continue
            by = self._woken_by if rung else ("open events" if self._waiting() else "poll")
            try:
                if rung:
                    number = self.shared.horizon.latest.number
                    loops = self.holder.loops.values()
                    await deliver_ahead_of_horizon(self._looker, number, loops, self.queues)
                look = await self._looker.look()
            except Exception as error:
                if not is_database_error(error):
                    raise
                await anyio.sleep(outage.goes_on(error))
                self.ring("reconnect")
                continue
            if outage.is_over():
                self.verifying.bell.ring()
            self.shared.emit(Woken(by))
            pause = (
                MIN_HOLE_POLL_SECONDS
                if rung or look.final >= look.ceiling
                else min(2 * pause, MAX_HOLE_POLL_SECONDS)
            )
            if by in ("poll", "reconnect"):  # what a notification would have said
                self.look_for_requests()
                self._look_for_due()
            for loop in tuple(self.holder.loops.values()):
                if loop.source.new.show_more(look):
                    loop.wake()
            self._wake_queues()
            self.shared.progressed()

    def _look_for_due(self) -> None:
        for loop in tuple(self.holder.loops.values()):
            loop.source.look_for_due()
            loop.wake()

    def _wake_queues(self) -> None:
        for queue in self.queues:
            queue.wake()

    def _waiting(self) -> bool:
        return any(loop.source.new.wait_at_a_hole for loop in self.holder.loops.values())

    def _until_next_look(self, pause: float) -> float:
        if self._waiting():
            return pause
        loops, latest = self.holder.loops.values(), self.shared.horizon.latest
        interval = self._poll_interval()
        # A cursor finds out that there is a hole when it reads, which is after this.
        is_open = latest.final < latest.ceiling
        if is_open and any(loop.source.new.may_meet_a_hole(latest.number) for loop in loops):
            return min(MAX_HOLE_POLL_SECONDS, interval)
        if is_open or any(loop.source.new.are_open for loop in loops):
            return min(HOLES_POLL_SECONDS, interval)
        return interval * uniform(0.9, 1.0)  # noqa: S311 - processes should not poll in step

    def _poll_interval(self) -> float:
        settings = self.shared.settings
        if self.wakeup is not None and self.wakeup.is_listening:
            return settings.poll_interval.total_seconds()
        without = settings.poll_interval_without_notify
        return min(without, settings.poll_interval).total_seconds()

    # The leases

    async def _keep_leases(self, tasks: TaskGroup) -> None:
        every = self.shared.settings.lease_duration.total_seconds() / 3
        renew_at = monotonic() + every
        longest = min(every / 2, MAX_PAUSE_SECONDS)
        outage = Outage("leases", self.shared.emit, max_seconds=longest)
        while True:
            try:
                await self.leasing.bell.wait(min(self._until_next_claim(), renew_at - monotonic()))
                await self.shared.alibis.report(self.shared.connections)
                if monotonic() >= renew_at:
                    await self._renew()
                    renew_at = monotonic() + every
                await self._claim(tasks)
                outage.is_over()
            except Exception as error:
                if not is_database_error(error):
                    raise
                pause = outage.goes_on(error)
                self.shared.connections.drop_idle()
                self._drop_expired()
                renew_at = 0.0  # and be counted again, before anything is claimed
                await anyio.sleep(pause)

    async def _claim(self, tasks: TaskGroup) -> None:
        if not self.holder.is_stopping:
            # Shielded: one that is claimed and not worked for would be nobody's until it expires.
            limit = self.shared.settings.probe_timeout.total_seconds()
            with anyio.fail_after(limit, shield=True):
                barriers = self._barriers()
                claimed = await self.leasing.claim()
                for lease in self.leasing.lost:
                    self.holder.drop(lease)
                for lease in claimed:
                    tasks.start_soon(self.holder.work, lease)
            self.holder.hand_over(self.leasing.hand_over)
            if barriers != self._barriers():
                self.ring("poll")  # nobody tells of what is above one that was lifted

    def _barriers(self) -> dict[tuple[str, int], int]:
        held = self.leasing.held.items()
        return {key: lease.barrier for key, lease in held if lease.barrier is not None}

    def _until_next_claim(self) -> float:
        if self._barriers():
            return BARRIER_POLL_SECONDS
        interval = self._poll_interval()
        soon = self.leasing.seconds_to_claim()
        return interval if soon is None else min(interval, soon)

    async def _renew(self) -> None:
        self._drop_expired()
        if not self.holder.is_stopping:
            await self.leasing.announce()
        await self.memory.compare()
        ranges = sum(len(queue.held) for queue in self.queues)
        self.shared.emit(LeasesKept(tuple(name for name, _ in self.leasing.held), ranges))

    def _doubted(self) -> None:
        self.memory.doubt()
        self.ring("reconnect")

    def _drop_expired(self) -> None:
        for lease in tuple(self.leasing.held.values()):
            if lease.has_ended():
                self.holder.drop(lease)
        for queue in self.queues:
            queue.drop_expired()
