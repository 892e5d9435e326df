"""Starts and stops what runs beside the listeners: one list of services, one face for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from anyio import TASK_STATUS_IGNORED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anyio.abc import TaskGroup, TaskStatus

    from .services.lease_coordinator import LeaseCoordinator
    from .services.verification import Verification
    from .shared.context import ConsumerContext
    from .work.memory import Memory
    from .work.workload import Workload


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

    def cancel(self) -> None:
        """Cancel what still runs; its leases are given back."""
        self.workload.cancel()

    def hurry(self) -> None:
        """Wait no longer for takes that the database does not answer soon."""
        self.workload.hurry()
