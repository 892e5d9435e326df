"""Working for listeners: from a lease that was claimed to the moment it is given back or lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Protocol

import anyio
from anyio import CancelScope

from sa_outbox.errors import LeaseLost
from sa_outbox.observe import DatabaseAway, DatabaseBack, LeaseDropped, Place
from sa_outbox.policy.backoff import Backoff

from ..connection.connections import best_effort
from ..connection.errors import is_database_error
from .source import S

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from ..connection.connections import Query
    from ..lease.lease import Lease
    from ..shared.context import ConsumerContext
    from ..shared.sync import AutoResetEvent
    from .loop import DeliveryLoop

RELEASE_SECONDS = 2.0
"""Seconds to give a lease back; then it expires by itself."""


class LeaseSource(Protocol):
    """Where leases come from and go to."""

    bell: AutoResetEvent
    held: dict[tuple[str, int], Lease]
    lived: Query
    """Says that the holder of one lived."""
    renewal: Query
    """Renews them."""

    async def release(self, lease: Lease) -> None: ...

    def forget(self, lease: Lease) -> None: ...


class HeldLeases(Generic[S]):
    """The listeners, or ranges of a queue, that this consumer works for, each with its loop and
    what cancels it."""

    def __init__(
        self,
        context: ConsumerContext,
        leases: LeaseSource,
        make: Callable[[Lease], DeliveryLoop[S]],
    ) -> None:
        self.loops: dict[tuple[str, int], DeliveryLoop[S]] = {}
        self._context = context
        self._leases = leases
        self._make = make
        # By lease, not by key: one that is lost may end after its successor has begun here.
        self._scopes: dict[Lease, CancelScope] = {}
        self.is_stopping: bool = False

    @property
    def held(self) -> Mapping[tuple[str, int], Lease]:
        return self._leases.held

    @property
    def renewal(self) -> Query:
        return self._leases.renewal

    async def work(self, lease: Lease) -> None:
        """Work for one listener as long as its lease is ours, whatever the database does."""
        name = lease.listener
        backoff: Backoff | None = None
        try:
            while not self.is_stopping:
                loop = self.loops[lease.key] = self._make(lease)
                error = await self._run(loop)
                if error is None:
                    return
                backoff = backoff or Backoff()
                where, pause = Place("listener", name), backoff.next()
                self._context.observers.emit(DatabaseAway(where, type(error).__name__, pause))
                if not await self._stands(loop, pause):
                    return
                self._context.observers.emit(DatabaseBack(where))
        finally:
            last = self.loops.get(lease.key)
            if last is not None and last.lease is lease:
                del self.loops[lease.key]
            self._scopes.pop(lease, None)
            await self._give_back(lease)

    def stop(self) -> None:
        """Begin nothing new."""
        self.is_stopping = True
        for loop in self.loops.values():
            loop.stop()

    def cancel(self) -> None:
        """Cancel what still runs; its leases are given back."""
        for scope in tuple(self._scopes.values()):
            scope.cancel()

    def hand_over(self, keys: Iterable[tuple[str, int]]) -> None:
        """Others should have these: each is given back when what it has in flight is settled. So is
        one that has come to its barrier."""
        chosen = set(keys)
        for key, loop in self.loops.items():
            if not loop.is_stopping and (key in chosen or loop.source.is_at_barrier):
                loop.stop()

    def stop_listeners(self, names: Collection[str]) -> None:
        """Begin nothing new for these."""
        for (name, _), loop in self.loops.items():
            if name in names:
                loop.stop()

    def drop(self, lease: Lease) -> None:
        """The lease is lost: cancel what runs under it."""
        lease.is_lost = True
        scope = self._scopes.get(lease)
        if scope is not None:
            scope.cancel()

    def drop_expired(self) -> None:
        for lease in tuple(self.held.values()):
            if lease.has_ended():
                self.drop(lease)

    def may_have_ended(self, lease: Lease) -> bool:
        """Its row is deleted, or is just being deleted: all of a range is settled."""
        loop = self.loops.get(lease.key)
        return lease.is_over or (loop is not None and loop.may_have_ended)

    async def _run(self, loop: DeliveryLoop[S]) -> Exception | None:
        """None: stopped, cancelled or lost. Else what the database raised."""
        try:
            with CancelScope() as scope:
                self._scopes[loop.lease] = scope
                await loop.run()
        except LeaseLost:
            loop.lease.is_lost = True
        except Exception as error:
            if not is_database_error(error):
                raise
            return error
        return None

    async def _stands(self, loop: DeliveryLoop[S], pause: float) -> bool:
        """After an error of the database: read where we stand, if the listener is still ours."""
        lease = loop.lease
        while not lease.has_ended():
            await anyio.sleep(pause)
            try:
                lease.stands_at(await loop.settlement.stand())
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
        self._leases.forget(lease)
        if lease.is_lost:
            self._context.observers.emit(LeaseDropped(lease.listener, lease.token, lease.part))
            self._context.alibis.lost(lease, self._leases.lived)
        # Also when it was lost: perhaps only we believe so, after a sleep, and nobody else has
        # it. By its token nothing of another's can be released.
        if not lease.is_over:
            await best_effort(self._leases.release(lease), RELEASE_SECONDS)
        if self._context.alibis.unreported:
            reported = self._context.alibis.report(self._context.connections)
            await best_effort(reported, RELEASE_SECONDS)
        self._leases.bell.ring()
        self._context.progressed()
