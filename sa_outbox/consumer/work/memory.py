"""Compare what a process remembers with the database: see ``lease/continuity.py``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..lease.renewal import Renewal
    from .workload import Workload


class Memory:
    def __init__(self, workload: Workload, renewal: Renewal) -> None:
        self._workload = workload
        self._renewal = renewal

    async def compare(self) -> None:
        """Renew what is held, which drops leases whose rows are not as we left them."""
        self._workload.look_for_requests()
        await self._renewal.renew(self._workload.holders)

    def start_over(self) -> None:
        """The log has lost events that cursors have read. Ranges have rows, which are
        authoritative."""
        holder = self._workload.holder
        for lease in tuple(holder.held.values()):
            lease.outdated()
            holder.drop(lease)

    def doubt(self) -> None:
        """A connection has ended."""
        for queue in self._workload.queues:
            queue.doubt()
