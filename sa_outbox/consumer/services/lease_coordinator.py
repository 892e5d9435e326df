"""Claiming listeners, and releasing them."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from sa_outbox.observe import LeaseClaimed, LeaseReleased, ListenerChanged, PartitionsDiffer

from ..lease.lease import Lease
from ..lease.shares import Claimable, Shares, share
from ..shared.sync import AutoResetEvent

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sa_outbox.declare.listener import Listener

    from ..connection.connections import Query
    from ..lease.shares import Key
    from ..shared.context import ConsumerContext

OVERDUE_SECONDS = 2.0
"""Seconds after which something that is free may be claimed by a process whose share it is not."""


class LeaseCoordinator:
    """The leases of one consumer process; its *owner* is unique per start. For its *queues* it only
    announces that it works on them: their ranges are leased elsewhere.

    With *shares*, it announces itself and has its share of the listeners, and of their partitions.
    Without, for a process that stops when everything is handled, it claims what is free.
    """

    def __init__(
        self,
        context: ConsumerContext,
        listeners: Iterable[Listener],
        queues: Iterable[Listener],
        owner: str,
        *,
        shares: bool = True,
    ) -> None:
        self._context = context
        self._listeners = {listener.name: listener for listener in listeners}
        self.owner = owner
        self._shares = shares
        self._queues = [each.name for each in queues]
        self._duration = context.settings.lease_duration.total_seconds()
        self.lived: Query = context.statements.suspects.lived
        self.renewal: Query = context.statements.renew
        self.held: dict[Key, Lease] = {}
        self.bell: AutoResetEvent = AutoResetEvent()
        """Rung when something may be free."""
        self.hand_over: list[Key] = []
        """Held, and more than our share."""
        self.unclaimed: dict[Key, float] = {}
        """Free, or about to be released by us; and since when we know that."""
        self.lost: list[Lease] = []
        """Held according to us, and not at the last survey: an operator has moved the listener."""
        self._kept_until: dict[Key, float] = {}
        self._next_expiry: float | None = None
        self._barriers: dict[Key, int | None] = {}
        self._is_closing = False
        self._reported: set[tuple[str, int]] = set()

    @property
    def names(self) -> list[str]:
        return list(self._listeners)

    async def announce(self) -> None:
        """Be counted among those who share, for as long as a lease lasts."""
        if self._shares:
            await self._context.connections.rows(
                self._context.statements.announce,
                owner=self.owner,
                names=self.names,
                queues=self._queues,
                duration=self._duration,
            )

    async def withdraw(self) -> None:
        """Be counted no longer: what is released from now on is for the others. What was released
        before that they have left to us, so they are notified."""
        if self._shares:
            connections, statements = self._context.connections, self._context.statements
            if await connections.rows(statements.withdraw, owner=self.owner):
                await self.notify_others()

    async def notify_others(self) -> None:
        """Have them check who holds what."""
        await self._context.connections.rows(self._context.statements.notify_released)

    def stop(self) -> None:
        """Claim nothing more: what is free from now on is for others, including what we have just
        released."""
        self._is_closing = True

    async def claim(self) -> list[Lease]:
        """Claim what is free and in our share; the caller works on each and releases it."""
        shares = await self._survey()
        if not shares.claim or self._is_closing:
            return []
        began = monotonic()
        rows = await self._context.connections.rows(
            self._context.statements.claim,
            names=[name for name, _ in shares.claim],
            parts=[part for _, part in shares.claim],
            owner=self.owner,
            duration=self._duration,
        )
        claimed = []
        for row in rows:
            lease = Lease(row, duration=self._duration, began=began)
            lease.stops_at(self._barriers.get(lease.key))
            self.held[lease.key] = lease
            if self.unclaimed.pop(lease.key, began) <= began - OVERDUE_SECONDS:
                # The process whose share it is may still come: not back and forth each time.
                self._kept_until[lease.key] = began + self._duration
            self._context.observers.emit(
                LeaseClaimed(
                    lease.listener, lease.token, lease.position, lease.crashes > 0, lease.part
                )
            )
            await self._compare(lease)
            claimed.append(lease)
        return claimed

    async def _survey(self) -> Shares:
        began = monotonic()
        rows = await self._context.connections.rows(self._context.statements.survey)
        units, unclaimed, expiries = [], {}, []
        paused: list[Key] = []
        self._barriers = {}
        self.lost = []
        for row in rows:
            key = row["name"], row["part"]
            lease = self.held.get(key)
            self._barriers[key] = row["barrier"]
            if lease is not None:
                lease.stops_at(row["barrier"])
            if lease is not None and row["owner"] != self.owner:
                self.lost.append(lease)
            if row["paused"] or row["name"] in self._context.withheld:
                paused += [key] if row["paused"] else []
                continue
            owner, consumers = row["owner"], frozenset(row["consumers"])
            units.append(Claimable(key, owner, consumers, is_claimable=not row["at_barrier"]))
            if lease is not None or row["name"] not in self._listeners:
                continue
            if owner is None or owner == self.owner:  # ours: forgotten, and not released yet
                unclaimed[key] = self.unclaimed.get(key, began)
            if owner is not None:
                expiries.append(row["expires_in"])
        self.unclaimed = unclaimed
        self._next_expiry = began + min(expiries) if expiries else None
        overdue = {key for key, since in unclaimed.items() if since <= began - OVERDUE_SECONDS}
        keep = {key for key, until in self._kept_until.items() if began < until}
        shares = share(units, self.owner, self._listeners, overdue=overdue, keep=keep)
        self.hand_over = shares.hand_over + paused
        return shares

    def seconds_to_claim(self) -> float | None:
        """Seconds until something may be claimed that could not be: a lease of others expires, or
        one that is free is overdue. None: unknown."""
        now = monotonic()
        waits = [] if self._next_expiry is None else [max(0.01, self._next_expiry + 0.005 - now)]
        # Those that are overdue and can be claimed, we have claimed.
        waits += [
            max(OVERDUE_SECONDS / 4, since + OVERDUE_SECONDS - now)
            for since in self.unclaimed.values()
        ]
        return min(waits, default=None)

    async def release(self, lease: Lease) -> None:
        """Release it: free for others at once."""
        rows = await self._context.connections.rows(
            self._context.statements.release,
            name=lease.listener,
            part=lease.part,
            token=lease.token,
            owner=self.owner,
            crashed=lease.may_have_crashed,
        )
        if rows:
            self._context.observers.emit(LeaseReleased(lease.listener, lease.token, lease.part))
            await self.notify_others()

    async def release_all(self) -> None:
        """Release whatever is still leased to us: after a claim whose answer was lost, or a release
        that failed. Usually nothing. Only when no work is left."""
        connections, statements = self._context.connections, self._context.statements
        rows = await connections.rows(statements.release_all, owner=self.owner)
        if self._queues:  # otherwise this role may have no rights on their ranges
            rows += await connections.rows(statements.ranges.release_all, owner=self.owner)
        if rows:
            await self.notify_others()

    def forget(self, lease: Lease) -> None:
        self._kept_until.pop(lease.key, None)
        if self.held.get(lease.key) is lease:
            del self.held[lease.key]
            self.unclaimed[lease.key] = monotonic()  # until a survey knows better

    async def _compare(self, lease: Lease) -> None:
        listener = self._listeners[lease.listener]
        found = lease.listener, lease.count
        if lease.count != listener.partitions and found not in self._reported:
            self._reported.add(found)
            self._context.observers.emit(PartitionsDiffer(*found, declared=listener.partitions))
        if lease.fingerprint == listener.fingerprint:
            return
        if lease.fingerprint is not None:
            self._context.observers.emit(ListenerChanged(lease.listener))
        await self._context.connections.rows(
            self._context.statements.declare,
            name=lease.listener,
            part=lease.part,
            token=lease.token,
            fingerprint=listener.fingerprint,
        )
