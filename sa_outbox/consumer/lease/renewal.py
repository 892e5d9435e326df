"""Renewing leases: how often, and what the answer means. Cursors and ranges of queues alike.

``work/lease_keeper.py`` does it in time; after a connection has ended, ``work/memory.py`` does it
to compare what is remembered with the rows. A write under a lease renews it as well.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Protocol

import anyio

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from ..connection.connections import Connections, Query
    from .lease import Lease
    from .shares import Key

PER_DURATION = 3
"""How often a lease is renewed before it would expire: one renewal may fail, and one be late."""


def renew_every(duration: float) -> float:
    """Seconds between two renewals of a lease of that *duration*."""
    return duration / PER_DURATION


class Holder(Protocol):
    """Works under leases of one kind: of listeners, or of the ranges of one queue."""

    @property
    def held(self) -> Mapping[Key, Lease]: ...

    @property
    def renewal(self) -> Query:
        """The statement that renews them."""
        ...

    def drop(self, lease: Lease) -> None:
        """It is lost: cancel what runs under it."""
        ...

    def hand_over(self, keys: Iterable[Key]) -> None:
        """Give these back when what is in flight is settled."""
        ...

    def may_have_ended(self, lease: Lease) -> bool:
        """Its row is deleted, or is just being deleted: all of a range is settled."""
        ...


class Renewal:
    """*withheld*: listeners that must not be worked for at the moment."""

    def __init__(
        self, connections: Connections, owner: str, duration: float, withheld: Collection[str]
    ) -> None:
        self._connections = connections
        self._owner = owner
        self._duration = duration
        self._withheld = withheld
        self._renewing = anyio.Lock()

    async def renew(self, holders: Iterable[Holder]) -> None:
        """Renew what they hold; drop leases that are lost or whose rows are not as we left them."""
        # One at a time: two such statements could lock the same rows in different orders.
        async with self._renewing:
            for holder in holders:
                await self._renew(holder)

    async def _renew(self, holder: Holder) -> None:
        leases = [lease for lease in holder.held.values() if not lease.has_ended()]
        if not leases:
            return
        began, before = monotonic(), [lease.saved for lease in leases]
        rows = await self._connections.rows(
            holder.renewal,
            names=[lease.listener for lease in leases],
            parts=[lease.part for lease in leases],
            tokens=[lease.token for lease in leases],
            owner=self._owner,
            duration=self._duration,
        )
        found = {(row["name"], row["part"]): row for row in rows}
        for lease, saved in zip(leases, before, strict=True):
            row = found.get(lease.key)
            if row is None:
                if not holder.may_have_ended(lease):
                    holder.drop(lease)
            elif lease.is_outdated or lease.is_contradicted_by(row, before=saved):
                lease.outdated()
                holder.drop(lease)
            else:
                lease.renewed(began)
        paused = (key for key, row in found.items() if row["paused"] or key[0] in self._withheld)
        holder.hand_over(paused)
