"""Claiming listeners, renewing what is held, giving it back."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from sa_outbox.observe import LeaseClaimed, LeaseReleased, ListenerChanged, PartitionsDiffer

from .gate import Bell
from .lease import Lease
from .sharing import Shares, Unit, share

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sa_outbox.listener import Listener

    from .shared import Shared
    from .sharing import Key

OVERDUE = 2.0
"""Seconds that something is free before others than the one whose share it is claim it."""


class Leasing:
    """The leases of one consumer process; its *owner* is unique per start. For its *queues* it only
    says that it works for them: their ranges are leased elsewhere.

    With *shares*, it announces itself and has its share of the listeners, and of their partitions.
    Without, for a process that leaves when all is done, it takes what is free.
    """

    def __init__(
        self,
        shared: Shared,
        listeners: Iterable[Listener],
        queues: Iterable[Listener],
        owner: str,
        *,
        shares: bool = True,
    ) -> None:
        self._shared = shared
        self._listeners = {listener.name: listener for listener in listeners}
        self.owner = owner
        self._shares = shares
        self._queues = [each.name for each in queues]
        self._duration = shared.settings.lease_duration.total_seconds()
        self.held: dict[Key, Lease] = {}
        self.bell = Bell()
        """Rung when something may be free."""
        self.hand_over: list[Key] = []
        """Held, and more than our share."""
        self.unclaimed: dict[Key, float] = {}
        """Free, and since when we know it."""
        self.lost: list[Lease] = []
        """Held, as we thought at the last survey; a person has moved the listener."""
        self._kept_until: dict[Key, float] = {}
        self._next_expiry: float | None = None
        self._barriers: dict[Key, int | None] = {}
        self.is_closing = False
        """What is free from now on is for others: among it is what we have just given back."""
        self._told_of: set[tuple[str, int]] = set()

    @property
    def names(self) -> list[str]:
        return list(self._listeners)

    async def announce(self) -> None:
        """Be counted among those who share, for as long as a lease lasts."""
        if self._shares:
            await self._shared.connections.rows(
                self._shared.statements.announce,
                owner=self.owner,
                names=self.names,
                queues=self._queues,
                duration=self._duration,
            )

    async def withdraw(self) -> None:
        """Be counted no longer: what is released from now on is for the others."""
        if self._shares:
            connections, statements = self._shared.connections, self._shared.statements
            await connections.rows(statements.withdraw, owner=self.owner)

    async def tell_others(self) -> None:
        """Have them look who holds what."""
        await self._shared.connections.rows(self._shared.statements.notify_released)

    async def claim(self) -> list[Lease]:
        """Claim what is free and ours to claim; the caller works for each and gives it back."""
        shares = await self._survey()
        if not shares.claim or self.is_closing:
            return []
        began = monotonic()
        rows = await self._shared.connections.rows(
            self._shared.statements.claim,
            names=[name for name, _ in shares.claim],
            parts=[part for _, part in shares.claim],
            owner=self.owner,
            duration=self._duration,
        )
        claimed = []
        for row in rows:
            lease = Lease(row, duration=self._duration, began=began)
            lease.count = row["count"]
            lease.barrier = self._barriers.get(lease.key)
            self.held[lease.key] = lease
            if self.unclaimed.pop(lease.key, began) <= began - OVERDUE:
                # Whose it should have been may come yet; not back and forth all the time.
                self._kept_until[lease.key] = began + self._duration
            self._shared.tell(
                LeaseClaimed(
                    lease.listener, lease.token, lease.position, lease.crashes > 0, lease.part
                )
            )
            await self._compare(lease)
            claimed.append(lease)
        return claimed

    async def _survey(self) -> Shares:
        began = monotonic()
        rows = await self._shared.connections.rows(self._shared.statements.survey)
        units, unclaimed, expiries = [], {}, []
        paused: list[Key] = []
        self._barriers = {}
        self.lost = []
        for row in rows:
            key = row["name"], row["part"]
            lease = self.held.get(key)
            self._barriers[key] = row["barrier"]
            if lease is not None:
                lease.barrier = row["barrier"]
            if lease is not None and row["owner"] != self.owner:
                self.lost.append(lease)
            if row["paused"] or row["name"] in self._shared.withheld:
                paused += [key] if row["paused"] else []
                continue
            owner, consumers = row["owner"], frozenset(row["consumers"])
            units.append(Unit(key, owner, consumers, is_claimable=not row["at_barrier"]))
            if lease is not None or row["name"] not in self._listeners:
                continue
            if owner is None:
                unclaimed[key] = self.unclaimed.get(key, began)
            else:  # perhaps ours still, that we are about to give back
                expiries.append(row["expires_in"])
        self.unclaimed = unclaimed
        self._next_expiry = began + min(expiries) if expiries else None
        overdue = {key for key, since in unclaimed.items() if since <= began - OVERDUE}
        keep = {key for key, until in self._kept_until.items() if began < until}
        shares = share(units, self.owner, self._listeners, overdue=overdue, keep=keep)
        self.hand_over = shares.hand_over + paused
        return shares

    def seconds_to_claim(self) -> float | None:
        """Until something may be claimed that could not be: a lease of others expires, or one
        that is free becomes anybody's. None: nobody knows."""
        now = monotonic()
        waits = [] if self._next_expiry is None else [max(0.01, self._next_expiry + 0.005 - now)]
        # Of those that are overdue, we could have claimed what can be claimed.
        waits += [max(OVERDUE / 4, since + OVERDUE - now) for since in self.unclaimed.values()]
        return min(waits, default=None)

    async def renew(self) -> tuple[list[Lease], list[Lease]]:
        """Renew all that is held. Returns those that are lost, and those of listeners
        that are paused or withheld."""
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
        withheld = self._shared.withheld
        stop = [each for each in leases if paused.get(each.key) or each.listener in withheld]
        return lost, stop

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
            self._shared.tell(LeaseReleased(lease.listener, lease.token, lease.part))
            await self.tell_others()

    def forget(self, lease: Lease) -> None:
        self._kept_until.pop(lease.key, None)
        if self.held.get(lease.key) is lease:
            del self.held[lease.key]
            self.unclaimed[lease.key] = monotonic()  # until a survey knows better

    async def _compare(self, lease: Lease) -> None:
        listener = self._listeners[lease.listener]
        found = lease.listener, lease.count
        if lease.count != listener.partitions and found not in self._told_of:
            self._told_of.add(found)
            self._shared.tell(PartitionsDiffer(*found, declared=listener.partitions))
        if lease.fingerprint == listener.fingerprint:
            return
        if lease.fingerprint is not None:
            self._shared.tell(ListenerChanged(lease.listener))
        await self._shared.connections.rows(
            self._shared.statements.declare,
            name=lease.listener,
            part=lease.part,
            token=lease.token,
            fingerprint=listener.fingerprint,
        )
