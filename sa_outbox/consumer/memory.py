"""Compare what a process remembers with the database: see ``lease/continuity.py``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import anyio

if TYPE_CHECKING:
    from .loop.holder import HeldLeases
    from .loop.log_source import LogSource
    from .queue.queue import Queue
    from .services.lease_coordinator import LeaseCoordinator


class Holding(Protocol):
    """Whoever holds the leases and works under them."""

    leasing: LeaseCoordinator
    holder: HeldLeases[LogSource]
    queues: list[Queue]


class Memory:
    def __init__(self, holding: Holding) -> None:
        self._holding = holding
        self._comparing = anyio.Lock()

    async def compare(self) -> None:
        """Renew what is held, and drop leases whose row is not as we left it."""
        holding = self._holding
        # One at a time: two such statements could lock the same rows in different orders.
        async with self._comparing:
            lost, paused = await holding.leasing.renew()
            for lease in lost:
                holding.holder.drop(lease)
            for queue in holding.queues:
                await queue.renew()
            holding.holder.hand_over(lease.key for lease in paused)

    def start_over(self) -> None:
        """The log has lost events that cursors have read. Ranges have rows, which are
        authoritative."""
        for lease in tuple(self._holding.leasing.held.values()):
            lease.outdated()
            self._holding.holder.drop(lease)

    def doubt(self) -> None:
        """What was offered was read before a connection ended."""
        for queue in self._holding.queues:
            queue.doubt()
