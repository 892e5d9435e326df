"""Starts and stops what runs beside the listeners: one list of services, one face for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import anyio
from anyio import TASK_STATUS_IGNORED

from .connection.connections import best_effort

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from anyio.abc import TaskGroup, TaskStatus

    from .services.lease_coordinator import LeaseCoordinator
    from .services.verification import Verification
    from .shared.context import ConsumerContext
    from .work.memory import Memory
    from .work.workload import Workload

WITHDRAW_SECONDS = 1.0
"""Seconds to tell the others that this consumer leaves."""


class Service(Protocol):
    """A part that runs as long as its consumer does."""

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Run until cancelled; then nothing is left of it: no task, no lease, no connection. It
        may be run again after that. Reports that it has started once others may rely on it."""
        ...


class Supervisor:
    def __init__(
        self,
        context: ConsumerContext,
        leases: LeaseCoordinator,
        workload: Workload,
        memory: Memory,
        verification: Verification,
        services: Sequence[Service],
    ) -> None:
        """*services* in the order in which they are started."""
        self.context = context
        self.leases = leases
        self.workload = workload
        self.memory = memory
        self.verification = verification
        self.services = services

    async def start(self, tasks: TaskGroup) -> None:
        """Start all services in *tasks*, each after the one before it has started."""
        for service in self.services:
            await tasks.start(service.run)

    def stop(self) -> None:
        """Begin nothing new. The services go on: what still runs needs its leases."""
        self.leases.stop()
        self.workload.stop()

    async def wind_down(self, grace: float, progress: Callable[[], Awaitable[None]]) -> None:
        """Begin nothing new, and let what runs finish for *grace* seconds. Then cancel the rest.
        *progress* returns when something has changed."""
        self.stop()
        await best_effort(self.leases.withdraw(), WITHDRAW_SECONDS)
        with anyio.move_on_after(grace):
            while self.workload.is_at_work:
                await progress()
        self.cancel()
        while self.workload.holds_leases:
            await progress()

    def cancel(self) -> None:
        """Cancel what still runs; its leases are given back."""
        self.workload.cancel()

    async def leave(self) -> None:
        """The last words to the database. Nothing is worked for any more."""
        await self.leases.withdraw()
        await self.leases.release_all()

    def hurry(self) -> None:
        """Wait no longer for takes that the database does not answer soon."""
        self.workload.hurry()
