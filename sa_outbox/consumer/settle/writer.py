"""Runs the statements that settle events, in one transaction under the lease."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any

import anyio

from sa_outbox.errors import LeaseLost
from sa_outbox.policy.backoff import Backoff

from ..connection.errors import is_transient, is_unreachable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ..connection.connections import Connections
    from ..connection.statements import Settling
    from ..lease.continuity import Continuity
    from ..lease.lease import Lease
    from ..position.progress import Saved
    from .writes import Write

FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.05, 2.0


class SettlementWriter:
    """Runs plans for one lease on the consumer's own connections."""

    def __init__(
        self,
        connections: Connections,
        continuity: Continuity,
        statements: Settling,
        lease: Lease,
    ) -> None:
        self._connections = connections
        self._continuity = continuity
        self._statements = statements
        self._lease = lease

    async def write(self, writes: list[Write], *, new: Saved) -> None:
        """Run *writes* in one transaction, for as long as it takes and the lease is ours.

        Shielded: the handlers' effects exist already; cancelled here, they would come twice.
        Raises :class:`LeaseLost`.
        """
        with anyio.CancelScope(shield=True):
            backoff = Backoff(FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS)
            while True:
                began = monotonic()
                try:
                    await self.sure()
                    if not await self._run(writes):
                        continue
                except Exception as error:
                    # A deadlock, with one who cancels several: all of it is to be done again.
                    if not is_transient(error):
                        if not is_unreachable(error):
                            raise
                        self._connections.drop_idle()
                    if self._lease.has_ended():
                        raise _away_too_long() from error
                    await anyio.sleep(backoff.next())
                    # The answer to the COMMIT may be what was lost.
                    if await self.became(new):
                        break
                else:
                    break
            self._lease.renewed(began)

    async def sure(self) -> None:
        """Wait until it is known that the database still has what was read and saved: else events
        would be settled whose ids are other events' now. Raises :class:`LeaseLost`."""
        if not self._continuity.is_sure or self._lease.is_outdated:
            await self._continuity.sure(self._lease)

    async def became(self, new: Saved) -> bool:
        """Whether the listener's row holds *new*; waits for a transaction that is writing it."""
        backoff = Backoff(FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS)
        while True:
            try:
                row = await self.stand()
            except Exception as error:
                if not is_unreachable(error):
                    raise
                if self._lease.has_ended():
                    raise _away_too_long() from error
                self._connections.drop_idle()
                await anyio.sleep(backoff.next())
            else:
                return bool(row["revision"] == new.revision)

    async def stand(self) -> Any:
        """The listener's row: position, gaps, revision, retries. Raises :class:`LeaseLost`."""
        term = self._lease.term
        rows = await self._connections.rows(
            self._statements.stand,
            name=term["name"],
            part=term["part"],
            token=term["token"],
            owner=term["owner"],
        )
        if not rows:
            raise self._lease.lost()
        return rows[0]

    async def _run(self, writes: list[Write]) -> bool:
        """False if nothing was written: the connection is one of another era."""
        async with self._connections.connection() as connection:
            if not self._continuity.is_sure:
                return False
            if len(writes) == 1:  # by far the most: one statement, no transaction around it
                await self._run_each(writes, connection.rows)
                return True
            async with connection.transaction():
                await self._run_each(writes, connection.rows)
            return True

    async def _run_each(
        self, writes: list[Write], run: Callable[..., Awaitable[list[Any]]]
    ) -> None:
        for write in writes:
            rows = await run(write.query, **write.values)
            if write.fenced and not rows:
                raise self._lease.lost()


def _away_too_long() -> LeaseLost:
    return LeaseLost("the database was away for longer than the lease: another may hold it now")
