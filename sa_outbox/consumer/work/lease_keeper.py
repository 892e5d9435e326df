"""Claims what is free, renews what is held, drops what was not renewed in time."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

import anyio
from anyio import TASK_STATUS_IGNORED

from sa_outbox.clock import clock
from sa_outbox.observe import LeasesKept, Place
from sa_outbox.policy.backoff import MAX_PAUSE_SECONDS

from ..connection.errors import is_database_error
from ..lease.renewal import renew_every
from ..shared.outage import Outage

if TYPE_CHECKING:
    from collections.abc import Callable

    from anyio.abc import TaskGroup, TaskStatus

    from ..services.lease_coordinator import LeaseCoordinator
    from ..shared.context import ConsumerContext
    from .memory import Memory
    from .workload import Workload

BARRIER_POLL_SECONDS = 0.1
"""Seconds between two surveys while a cursor is on its way to a barrier, or waits at it."""


class LeaseKeeper:
    """Works for the listeners it claims, in a task group of its own: stopped, it gives them back.
    Queues claim their ranges themselves; here they are only renewed."""

    def __init__(
        self,
        context: ConsumerContext,
        leases: LeaseCoordinator,
        workload: Workload,
        memory: Memory,
        poll_interval: Callable[[], float],
    ) -> None:
        self._context = context
        self._leases = leases
        self._workload = workload
        self._holder = workload.holder
        self._memory = memory
        self._poll_interval = poll_interval

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Started is: others know of this process, and it has claimed what is free."""
        await self._leases.announce()
        await self._leases.notify_others()  # those who came first have something for us
        async with anyio.create_task_group() as tasks:
            await self._claim(tasks)
            task_status.started()
            await self._keep(tasks)

    async def _keep(self, tasks: TaskGroup) -> None:
        every = renew_every(self._context.settings.lease_duration.total_seconds())
        renew_at, moves = monotonic() + every, clock.moves
        longest = min(every / 2, MAX_PAUSE_SECONDS)
        outage = Outage(Place("leases"), self._context.observers.emit, max_seconds=longest)
        bell = self._leases.bell
        while True:
            try:
                await bell.wait(min(self._until_next_claim(), renew_at - monotonic()))
                await self._context.alibis.report(self._context.connections)
                # Also after the clock was moved: otherwise the survey finds our own leases expired.
                while monotonic() >= renew_at or clock.moves != moves:
                    moves = clock.moves
                    await self._renew()
                    renew_at = monotonic() + every
                await self._claim(tasks)
                if outage.is_away:
                    outage.ends()
            except Exception as error:
                if not is_database_error(error):
                    raise
                pause = outage.goes_on(error)
                self._context.connections.drop_idle()
                self._drop_expired()
                renew_at = 0.0  # and be counted again, before anything is claimed
                await anyio.sleep(pause)

    async def _claim(self, tasks: TaskGroup) -> None:
        if self._holder.is_stopping:
            return
        # Shielded: one that is claimed and not worked for would be nobody's until it expires.
        limit = self._context.settings.probe_timeout.total_seconds()
        with anyio.fail_after(limit, shield=True):
            barriers = self._barriers()
            claimed = await self._leases.claim()
            for lease in self._leases.lost:
                self._holder.drop(lease)
            for lease in claimed:
                tasks.start_soon(self._holder.work, lease)
        self._holder.hand_over(self._leases.hand_over)
        if barriers != self._barriers():
            self._context.bell.ring("poll")  # nobody notifies of what is above one that was lifted

    def _barriers(self) -> dict[tuple[str, int], int]:
        held = self._leases.held.items()
        return {key: lease.barrier for key, lease in held if lease.barrier is not None}

    def _until_next_claim(self) -> float:
        if self._barriers():
            return BARRIER_POLL_SECONDS
        interval = self._poll_interval()
        soon = self._leases.seconds_to_claim()
        return interval if soon is None else min(interval, soon)

    async def _renew(self) -> None:
        self._drop_expired()
        if not self._holder.is_stopping:
            await self._leases.announce()
        await self._memory.compare()
        ranges = sum(len(queue.held) for queue in self._workload.queues)
        self._context.observers.emit(
            LeasesKept(tuple(name for name, _ in self._leases.held), ranges)
        )

    def _drop_expired(self) -> None:
        for holder in self._workload.holders:
            holder.drop_expired()
