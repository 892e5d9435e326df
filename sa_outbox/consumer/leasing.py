"""Claiming listeners, renewing what is held, giving it back."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from sa_outbox.observe import LeaseClaimed, LeaseReleased, ListenerChanged

from .gate import Bell
from .lease import Lease

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sa_outbox.listener import Listener

    from .shared import Shared


class Leasing:
    """The leases of one consumer process; its *owner* is unique per start."""

    def __init__(self, shared: Shared, listeners: Iterable[Listener], owner: str) -> None:
        self._shared = shared
        self._listeners = {listener.name: listener for listener in listeners}
        self.owner = owner
        self._duration = shared.settings.lease_duration.total_seconds()
        self.held: dict[tuple[str, int], Lease] = {}
        self.bell = Bell()
        """Rung when something may be free."""

    @property
    def wanted(self) -> list[str]:
        held = {name for name, _ in self.held}
        return [name for name in self._listeners if name not in held]

    async def claim(self) -> list[Lease]:
        """Claim what is free; the caller works for each and gives it back."""
        wanted = self.wanted
        if not wanted:
            return []
        began = monotonic()
        rows = await self._shared.connections.rows(
            self._shared.statements.claim,
            names=wanted,
            owner=self.owner,
            duration=self._duration,
        )
        claimed = []
        for row in rows:
            lease = Lease(row, duration=self._duration, began=began)
            self.held[lease.key] = lease
            self._shared.tell(
                LeaseClaimed(lease.listener, lease.token, lease.position, lease.crashes > 0)
            )
            await self._compare(lease)
            claimed.append(lease)
        return claimed

    async def seconds_to_expiry(self) -> float | None:
        """Until the first lease of others that we want expires; None if nobody holds one."""
        wanted = self.wanted
        if not wanted:
            return None
        found: float | None = await self._shared.connections.value(
            self._shared.statements.standing, names=wanted
        )
        return found

    async def renew(self) -> tuple[list[Lease], list[Lease]]:
        """Renew all that is held. Returns those that are lost, and those of paused listeners."""
        leases = [lease for lease in self.held.values() if not lease.has_ended()]
        if not leases:
            return [], []
        began = monotonic()
        rows = await self._shared.connections.rows(
            self._shared.statements.renew,
            names=[lease.listener for lease in leases],
            parts=[lease.part for lease in leases],
            tokens=[lease.token for lease in leases],
            duration=self._duration,
        )
        paused = {(row["name"], row["part"]): row["paused"] for row in rows}
        for lease in leases:
            if lease.key in paused:
                lease.renewed(began)
        lost = [lease for lease in leases if lease.key not in paused]
        return lost, [lease for lease in leases if paused.get(lease.key)]

    async def release(self, lease: Lease) -> None:
        """Give it back: free for others at once."""
        rows = await self._shared.connections.rows(
            self._shared.statements.release,
            name=lease.listener,
            part=lease.part,
            token=lease.token,
            crashed=lease.is_lost,
        )
        if rows:
            self._shared.tell(LeaseReleased(lease.listener, lease.token))
            await self._shared.connections.rows(self._shared.statements.notify_released)

    def forget(self, lease: Lease) -> None:
        if self.held.get(lease.key) is lease:
            del self.held[lease.key]

    async def _compare(self, lease: Lease) -> None:
        declared = self._listeners[lease.listener].fingerprint
        if lease.fingerprint == declared:
            return
        if lease.fingerprint is not None:
            self._shared.tell(ListenerChanged(lease.listener))
        await self._shared.connections.rows(
            self._shared.statements.declare,
            name=lease.listener,
            part=lease.part,
            token=lease.token,
            fingerprint=declared,
        )
