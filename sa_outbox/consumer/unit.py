"""A handler with a session: its effects and the cursor in one transaction, so exactly once.

Invariant: the transaction that holds the effects of an event is committed if and only if the
listener's row says, in the same transaction, that the event is settled, under the present lease.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
from sqlalchemy.exc import SQLAlchemyError

from sa_outbox.errors import LeaseLost

from .connections import is_away, is_passing, swallow

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .dispatch import Dispatch
    from .item import Item
    from .lease import Lease
    from .progress import Progress
    from .session import AsyncHandlerSession, HandlerSession
    from .settle import Write
    from .settlement import Settlement

COMMITTING = 30.0
"""Seconds for the statements that settle and the COMMIT; then its outcome is asked for."""
CLOSING = 1.0


class Again(Exception):
    """The attempt had no outcome of its own (the database was away, a deadlock): do it again."""

    def __init__(self, cause: BaseException, *, away: bool) -> None:
        super().__init__(str(cause))
        self.cause = cause
        self.away = away


class Unit:
    """Attempts in a session of its own, for one hand."""

    def __init__(
        self,
        make_session: Callable[[], Any],
        dispatch: Dispatch,
        lease: Lease,
        progress: Progress,
        settlement: Settlement,
    ) -> None:
        self._make_session = make_session
        self._dispatch = dispatch
        self._lease = lease
        self._progress = progress
        self._settlement = settlement

    async def __call__(self, items: Sequence[Item], argument: Any) -> BaseException | None:
        """Attempt *items* in one transaction. None: committed. Else what the handler raised.

        Raises :class:`Again` when it was not the handler's doing, and :class:`LeaseLost`.
        """
        session: Any = self._make_session()
        inner: HandlerSession = getattr(session, "sync_session", session)
        is_async = session is not inner
        abandoned = False
        try:
            await self._connect(session, inner, argument, is_async=is_async)
            inner.lend()
            try:
                error = await self._dispatch(items, argument, session)
            finally:
                # Timed out or cancelled: a thread can't be stopped, it has the session still.
                abandoned = not is_async and inner.abandon()
            if abandoned:
                return error
            wrong = inner.take_back()
            if error is not None:
                return inner.violation or self._judge(error)
            return wrong or await self._commit(items, session, is_async=is_async)
        finally:
            if not abandoned:
                inner.guarded = False
                await self._close(session, is_async=is_async)

    async def _connect(
        self, session: Any, inner: HandlerSession, argument: Any, *, is_async: bool
    ) -> None:
        # Before the handler runs: what fails here is not its failure.
        try:
            if is_async:
                await session.run_sync(lambda _: inner.connect(argument))
            else:
                await anyio.to_thread.run_sync(inner.connect, argument)
        except (SQLAlchemyError, OSError, TimeoutError) as error:
            raise Again(error, away=True) from error

    def _judge(self, error: BaseException) -> BaseException:
        """Whether *error* is the handler's. That it went away tells only a database's own error:
        an OSError may be of any service the handler called."""
        if isinstance(error, SQLAlchemyError):
            if is_away(error):
                raise Again(error, away=True) from error
            if is_passing(error):
                raise Again(error, away=False) from error
        return error

    async def _commit(
        self, items: Sequence[Item], session: Any, *, is_async: bool
    ) -> BaseException | None:
        async with self._settlement.lock:
            if self._lease.has_ended():
                raise self._lease.lost()
            new = self._progress.after(self._settlement.leaves(items))
            writes = self._settlement.plan_in_session(items, new)
            try:
                # Shielded, with a limit: cancelled in a COMMIT, nobody would know its outcome; and
                # without a limit, a silent network would hold the process for ever.
                with anyio.fail_after(COMMITTING, shield=True):
                    if is_async:
                        await _settle_async(session, writes, self._lease)
                    else:
                        await anyio.to_thread.run_sync(_settle_sync, session, writes, self._lease)
            except LeaseLost:
                raise
            except Exception as error:
                with anyio.CancelScope(shield=True):
                    if not is_away(error):
                        return self._judge(error)  # the database said no: nothing is committed
                    # The server ends what it has not committed yet, when its client is gone.
                    await self._drop(session, is_async=is_async)
                    if not await self._settlement.settler.became(new):
                        raise Again(error, away=True) from error
            self._progress.settle([item.position for item in items], new)
            return None

    async def _drop(self, session: Any, *, is_async: bool) -> None:
        if is_async:
            await swallow(session.invalidate(), CLOSING)
        else:
            await swallow(anyio.to_thread.run_sync(session.invalidate), CLOSING)

    async def _close(self, session: Any, *, is_async: bool) -> None:
        if is_async:
            await swallow(session.close(), CLOSING)
        else:
            await swallow(anyio.to_thread.run_sync(session.close), CLOSING)


async def _settle_async(session: AsyncHandlerSession, writes: list[Write], lease: Lease) -> None:
    for write in writes:
        result = await session.execute(write.query.clause, write.values)
        if write.fenced and result.first() is None:
            raise lease.lost()
    await session.commit()


def _settle_sync(session: HandlerSession, writes: list[Write], lease: Lease) -> None:
    for write in writes:
        result = session.execute(write.query.clause, write.values)
        if write.fenced and result.first() is None:
            raise lease.lost()
    session.commit()
