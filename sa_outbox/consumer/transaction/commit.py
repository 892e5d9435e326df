"""The end of a handler's transaction: the statements that settle, and the COMMIT."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio

from sa_outbox.errors import LeaseLost

from ..fault.attribution import Again, Lost, Refused, is_dead, meaning_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..fault.suspects import Key, Suspects
    from ..handler.delivery import InFlight
    from ..lease.lease import Lease
    from ..position.progress import Progress
    from ..settle.buffer import SettlementBuffer
    from .lent_session import LentSession

COMMIT_SECONDS = 30.0
"""Seconds for the statements that settle and the COMMIT; then its outcome is asked for."""


class Committer:
    """Commits the transactions of one task's handlers."""

    def __init__(
        self, lease: Lease, progress: Progress, settlement: SettlementBuffer, suspects: Suspects
    ) -> None:
        self._lease = lease
        self._progress = progress
        self._settlement = settlement
        self._suspects = suspects

    def keys(self, items: Sequence[InFlight]) -> list[Key]:
        return [(self._lease.listener, item.position, item.event_id) for item in items]

    async def __call__(
        self, items: Sequence[InFlight], session: LentSession
    ) -> BaseException | None:
        """Settle *items* in the session's transaction and commit it. None: it is committed. Else
        why what the handlers did can't be."""
        async with self._settlement.lock:
            await self._settlement.sure()
            if self._lease.has_ended():
                raise self._lease.lost()
            gone = self._settlement.leaves(items)
            new = self._progress.after(gone)
            writes = self._settlement.plan_in_session(items, new)
            found: BaseException | None = None
            try:
                # Shielded, with a limit: cancelled in a COMMIT, nobody would know its outcome; and
                # without a limit, a silent network would hold the process forever.
                with anyio.fail_after(COMMIT_SECONDS, shield=True):
                    await session.settle(writes, self._lease)
            except LeaseLost:
                raise
            except Exception as error:  # noqa: BLE001 - of any driver
                with anyio.CancelScope(shield=True):
                    found = await self._not_committed(items, error, session, new)
            if found is not None:
                return found
            self._progress.settle(gone, new)
            self._suspects.commits += 1
            return None

    async def _not_committed(
        self, items: Sequence[InFlight], error: Exception, session: LentSession, new: Any
    ) -> BaseException | None:
        """What an error while settling means. None: it is committed all the same."""
        cause = (error.__cause__ or error) if isinstance(error, Refused) else error
        # Timed out here, the connection is lost by our doing.
        is_lost = not isinstance(error, TimeoutError) and (
            session.inner.is_lost() or is_dead(cause)
        )
        match meaning_of(error, cause, is_lost=is_lost):
            case "handler":
                return cause
            case "passing":
                raise Again(cause, "passing") from cause
            case "unknown":
                lost = Lost(cause)
                # The server ends what it has not committed yet, when its client is gone.
                await session.invalidate()
                try:
                    if await self._settlement.became(new):
                        return None
                except LeaseLost:
                    if is_lost:
                        self._suspects.lost(self.keys(items), cause, at=lost.at, lived=False)
                    raise
                if is_lost:
                    raise lost from cause
            case _:
                pass
        self._suspects.refused(self.keys(items), cause)
        raise Again(cause, "ours") from cause
