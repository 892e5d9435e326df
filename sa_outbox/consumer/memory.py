"""Compare what a process remembers with the database: see ``lease/continuity.py``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from .services.lease_coordinator import LeaseCoordinator
    from .workload import Workload


class Memory:
    def __init__(self, leases: LeaseCoordinator, workload: Workload) -> None:
        self._leases = leases
        self._workload = workload
        self._comparing = anyio.Lock()

    async def compare(self) -> None:
        """Renew what is held, and drop leases whose row is not as we left it."""
        holder = self._workload.holder
        # One at a time: two such statements could lock the same rows in different orders.
        async with self._comparing:
            lost, paused = await self._leases.renew()
            for lease in lost:
                holder.drop(lease)
            for queue in self._workload.queues:
                await queue.renew()
            holder.hand_over(lease.key for lease in paused)

    def start_over(self) -> None:
        """The log has lost events that cursors have read. Ranges have rows, which are
        authoritative."""
        for lease in tuple(self._leases.held.values()):
            lease.outdated()
            self._workload.holder.drop(lease)

    def doubt(self) -> None:
        """What was offered was read before a connection ended."""
        for queue in self._workload.queues:
            queue.doubt()
