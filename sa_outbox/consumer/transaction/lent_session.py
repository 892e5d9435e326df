"""A handler's session, async or in a thread, as the transaction around the handler sees it; and
the end of that transaction: the statements that settle, and the COMMIT."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
from sqlalchemy.exc import SQLAlchemyError

from sa_outbox.errors import LeaseLost
from sa_outbox.policy.delivery import IllegalMove

from ..connection.connections import best_effort
from ..fault.attribution import Again, Lost, Refused, is_dead, meaning_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import Connection, CursorResult

    from ..fault.suspects import Key, Suspects
    from ..handler.delivery import InFlight
    from ..handler.session import HandlerSession
    from ..lease.lease import Lease
    from ..position.progress import Progress
    from ..settle.buffer import SettlementBuffer
    from ..settle.writes import Write

CLOSE_SECONDS = 1.0
PING_SECONDS = 5.0
"""Seconds that a session has to say whether it is alive."""
COMMIT_SECONDS = 30.0
"""Seconds for the statements that settle and the COMMIT; then its outcome is asked for."""


class LentSession:
    def __init__(self, session: Any) -> None:
        self.session = session
        """What the handler gets."""
        self.inner: HandlerSession = getattr(session, "sync_session", session)
        self.is_async: bool = session is not self.inner
        self.alive_at: float = 0.0
        """When its connection was last known to be alive, by the monotonic clock."""
        self._is_committed = False
        self.is_abandoned = False
        """A thread that can't be stopped still uses it, and closes it when it ends."""

    async def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a method of the inner session: of an async one in its greenlet, else in a thread."""
        if self.is_async:
            return await self.session.run_sync(lambda _: function(*arguments))
        return await anyio.to_thread.run_sync(function, *arguments)

    async def join(self, host: LentSession, argument: Any) -> None:
        """Work in the savepoint of *host*'s transaction, for the event *argument*."""
        inner = self.inner
        inner.join(host.inner)
        if inner.tenant_setting is not None or inner.dispatch.after_begin:
            await self.run(inner.connect, argument)
        else:
            inner.connect(argument)  # sends nothing: no hook of the user's does
        inner.lend(with_door=not self.is_async)

    async def is_lost(self) -> bool:
        """Whether its connection is dead; asks."""
        if self.inner.is_lost():
            return True
        with anyio.move_on_after(PING_SECONDS) as asking:
            await self.run(self.inner.ask)
        return asking.cancelled_caught or self.inner.is_lost()

    async def settle(self, writes: list[Write], lease: Lease) -> None:
        """Run *writes* and commit. Raises :class:`Refused` for what is no error of the COMMIT."""
        await self.run(_settle, self.inner, writes, lease)
        self._is_committed = True

    async def commit_joined(self) -> None:
        """Have its hooks run and what waits be written; the host commits."""
        if self.inner.sends_at_commit:
            await self.run(self.inner.commit)
        else:
            self.inner.commit()

    async def invalidate(self) -> None:
        await best_effort(self.run(self.inner.invalidate), CLOSE_SECONDS)

    def leave(self) -> None:
        """Close one that has joined another's transaction: sends nothing."""
        self.inner.guarded = False
        self.inner.close()

    async def close(self) -> None:
        self.inner.guarded = False
        if self._is_committed:
            self.inner.finish()  # sends nothing: its connection is back in the pool
        else:
            await best_effort(self.run(self.inner.finish), CLOSE_SECONDS)


def _settle(session: HandlerSession, writes: list[Write], lease: Lease) -> None:
    try:
        connection = session.connection()
        for write in writes:
            result = _executed(connection, write)
            if write.fenced and result.first() is None:
                raise lease.lost()
    except SQLAlchemyError as error:
        raise Refused(str(error)) from error
    session.commit()


def _executed(connection: Connection, write: Write) -> CursorResult[Any]:
    if connection.dialect.driver == "asyncpg":  # rendered once, and not for every event
        arguments = tuple(write.query.arguments(write.values))
        return connection.exec_driver_sql(write.query.sql, arguments)
    return connection.execute(write.query.clause, write.values)


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
            try:
                writes = self._settlement.plan_in_session(items, new)
            except IllegalMove as bug:
                return bug
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
                lost = Lost(cause, session.alive_at)
                # The server ends what it has not committed yet, when its client is gone.
                await session.invalidate()
                try:
                    if await self._settlement.became(new):
                        return None
                except LeaseLost:
                    if is_lost:
                        keys = self.keys(items)
                        self._suspects.lost(keys, cause, at=session.alive_at, lived=False)
                    raise
                if is_lost:
                    raise lost from cause
            case _:
                pass
        self._suspects.refused(self.keys(items), cause)
        raise Again(cause, "ours") from cause
