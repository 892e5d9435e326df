"""Working for listeners: from a lease that was claimed to the moment it is given back or lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import anyio
from anyio import CancelScope

from sa_outbox.errors import LeaseLost
from sa_outbox.observe import DatabaseAway, DatabaseBack, LeaseDropped

from .connections import is_database_error, swallow

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from .cursor import Cursor
    from .gate import Bell
    from .lease import Lease
    from .shared import Shared

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
RELEASING = 2.0
"""Seconds to give a lease back; then it expires by itself."""


class Giving(Protocol):
    """Where leases come from and go to."""

    bell: Bell

    async def release(self, lease: Lease) -> None: ...

    def forget(self, lease: Lease) -> None: ...


class Tenures:
    """The listeners, or ranges of a queue, that this consumer works for, each with its cursor and
    what cancels it."""

    def __init__(self, shared: Shared, leasing: Giving, make: Callable[[Lease], Cursor]) -> None:
        self.cursors: dict[tuple[str, int], Cursor] = {}
        self._shared = shared
        self._leasing = leasing
        self._make = make
        # By lease, not by key: one that is lost may end after its successor has begun here.
        self._scopes: dict[Lease, CancelScope] = {}
        self.stopping = False

    async def work(self, lease: Lease) -> None:
        """Work for one listener as long as its lease is ours, whatever the database does."""
        name = lease.listener
        try:
            pause = FIRST_PAUSE
            while not self.stopping:
                cursor = self.cursors[lease.key] = self._make(lease)
                error = await self._run(cursor)
                if error is None:
                    return
                where = f"listener {name}"
                self._shared.tell(DatabaseAway(where, type(error).__name__, pause))
                if not await self._stands(cursor, pause):
                    return
                self._shared.tell(DatabaseBack(where))
                pause = min(2 * pause, LONGEST_PAUSE)
        finally:
            last = self.cursors.get(lease.key)
            if last is not None and last.lease is lease:
                del self.cursors[lease.key]
            self._scopes.pop(lease, None)
            await self._give_back(lease)

    def stop(self) -> None:
        """Begin nothing new."""
        self.stopping = True
        for cursor in self.cursors.values():
            cursor.stop()

    def look_for_due(self) -> None:
        """Somebody else may have made deliveries due."""
        for cursor in self.cursors.values():
            cursor.look_for_due()

    def cancel(self) -> None:
        """Cancel what still runs; its leases are given back."""
        for scope in tuple(self._scopes.values()):
            scope.cancel()

    def hand_over(self, keys: Iterable[tuple[str, int]]) -> None:
        """Others should have these: each is given back when what it has in hand is settled. So is
        one that has come to its barrier."""
        chosen = set(keys)
        for key, cursor in self.cursors.items():
            if not cursor.stopping and (key in chosen or cursor.intake.is_at_barrier):
                cursor.stop()

    def stop_listeners(self, names: Collection[str]) -> None:
        """Begin nothing new for these."""
        for (name, _), cursor in self.cursors.items():
            if name in names:
                cursor.stop()

    def drop(self, lease: Lease) -> None:
        """The lease is lost: cancel what runs under it."""
        lease.is_lost = True
        scope = self._scopes.get(lease)
        if scope is not None:
            scope.cancel()

    async def _run(self, cursor: Cursor) -> Exception | None:
        """None: stopped, cancelled or lost. Else what the database raised."""
        try:
            with CancelScope() as scope:
                self._scopes[cursor.lease] = scope
                await cursor.run()
        except LeaseLost:
            cursor.lease.is_lost = True
        except Exception as error:
            if not is_database_error(error):
                raise
            return error
        return None

    async def _stands(self, cursor: Cursor, pause: float) -> bool:
        """After an error of the database: read where we stand, if the listener is still ours."""
        lease = cursor.lease
        while not lease.has_ended():
            await anyio.sleep(pause)
            try:
                lease.stands_at(await cursor.settlement.settler.stand())
            except LeaseLost:
                break
            except Exception as error:
                if not is_database_error(error):
                    raise
            else:
                return True
        lease.is_lost = True
        return False

    async def _give_back(self, lease: Lease) -> None:
        self._leasing.forget(lease)
        if lease.is_lost:
            self._shared.tell(LeaseDropped(lease.listener, lease.token, lease.part))
        # Also when it was lost: perhaps only we believe so, after a sleep, and nobody else has
        # it. By its token nothing of another's can be released.
        if not lease.is_over:
            await swallow(self._leasing.release(lease), RELEASING)
        self._leasing.bell.ring()
        self._shared.progressed()
