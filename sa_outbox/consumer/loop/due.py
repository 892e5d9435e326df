"""Deliveries that have a row of their own: which are due, and which keys they keep waiting."""

from __future__ import annotations

from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any

from sa_outbox.event.row import ID, KEY, PAYLOAD

from ..lease.renewal import renew_every

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sa_outbox.declare.listener import Listener

    from ..connection.connections import Query
    from ..fault.refusals import Reads
    from ..handler.delivery import InFlight
    from ..lease.lease import Lease
    from ..shared.context import ConsumerContext

KEYS_SHARE = 20
"""One part in this many of the time may be spent on reading which keys are occupied."""
UNREADABLE_RETRY_SECONDS = 1.0
"""How long a delivery is left alone that is due and whose event is not in the log."""


class DueDeliveries:
    """The deliveries of one listener under one lease."""

    def __init__(
        self, context: ConsumerContext, listener: Listener, lease: Lease, reads: Reads
    ) -> None:
        self._context = context
        self._listener = listener
        self._lease = lease
        self._reads = reads
        self.occupied: set[str | None] = set()
        """Keys with a parked delivery: their new events go behind it. None: one without a key."""
        self.next_at: float = inf
        """When the next delivery is due, if there is one."""
        self.refresh_at: float = 0.0
        """When to ask the database again; 0: it was not asked since something changed."""
        self._refresh_every = renew_every(context.settings.lease_duration.total_seconds())
        """Seconds after which to ask again: a replay sends a notification, which may be lost."""
        self._read_keys_at = 0.0
        self._changes = 0
        self._taken: set[int] = set()
        """Positions of those that are in the lanes or in flight."""
        self._suspected: set[int] = set()
        """Of these, those that can have been in flight when a process died."""

    def forget(self) -> None:
        """Somebody else may have added rows: a replay."""
        self._read_keys_at = 0.0
        self.changed()

    def changed(self) -> None:
        """Rows were added or deleted, perhaps while the database is being asked."""
        self._changes += 1
        self.refresh_at = 0.0

    def given_back(self, item: InFlight) -> None:
        self._taken.discard(item.position)

    async def refresh(self) -> None:
        """Ask which keys are occupied and when the next delivery is due.

        Asked by the loop between two of its writes. Only its writes and replays add rows: a write
        adds its key to ``occupied``, and a replay does when it is taken. So a key that has a row is
        always there before a later event of it can pass. One that is there and has none does no
        harm: its next event gets a row, and is due at once. So the keys need not be read after each
        failure, which with many thousands of them would take all the time. But soon: a drain waits
        until none is left, and an event that goes behind nobody costs a row.
        """
        whose = {"listener": self._listener.name, "part": self._lease.part}
        connections, statements = self._context.connections, self._context.statements
        began, changes = monotonic(), self._changes
        too_soon = began < self._read_keys_at
        if not too_soon:
            rows = await connections.rows(statements.occupied, **whose)
            self.occupied = {row["key"] for row in rows}
            ended = monotonic()
            self._read_keys_at = ended + KEYS_SHARE * (ended - began)
        seconds = await connections.value(statements.next_due, **whose, taken=list(self._taken))
        self.next_at = inf if seconds is None else monotonic() + max(0.0, seconds)
        if self._changes != changes:
            self.refresh_at = 0.0
        elif too_soon and self.occupied:
            self.refresh_at = self._read_keys_at
        else:
            self.refresh_at = began + self._refresh_every

    async def take(self, room: int) -> Sequence[Any]:
        """Rows of deliveries that are due, each with what is behind it in its key."""
        rows = await self._take(self._context.statements.read_due, room)
        if not rows and self.next_at <= monotonic():
            self.next_at = monotonic() + UNREADABLE_RETRY_SECONDS
        return rows

    async def take_suspects(self, room: int, suspects: list[int]) -> Sequence[Any]:
        """``take`` for these positions alone."""
        query = self._context.statements.suspects.read_suspects
        return await self._take_suspected(query, room, suspects=suspects)

    async def take_earlier(self, room: int, since: float) -> Sequence[Any]:
        """``take`` for those that can have been attempted before *since*."""
        query = self._context.statements.suspects.read_earlier
        return await self._take_suspected(query, room, since=since)

    @property
    def has_suspects(self) -> bool:
        """Whether some of these are in the lanes or in flight."""
        self._suspected &= self._taken
        return bool(self._suspected)

    async def _take_suspected(self, query: Query, room: int, **only: Any) -> Sequence[Any]:
        before = set(self._taken)
        rows = await self._take(query, room, **only)
        self._suspected |= self._taken - before
        return rows

    async def _take(self, query: Query, room: int, **only: Any) -> Sequence[Any]:
        rows = await self._reads.carefully(
            self._context.connections,
            query,
            "due",
            listener=self._listener.name,
            part=self._lease.part,
            limit=room,
            taken=list(self._taken),
            **only,
        )
        rows = [row for row in rows if row[ID] not in self._taken]
        for row in rows:
            self._taken.add(row[ID])
            if row["state"] != "scheduled":
                self.occupied.add(row[KEY])
        # Also for none: our clock may be ahead of the database's, and the time not there yet.
        await self.refresh()
        return rows


def can_be_read(row: Any) -> bool:
    return row[PAYLOAD] is not None
