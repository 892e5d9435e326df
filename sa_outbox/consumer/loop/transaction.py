"""A handler with a session: its effects and the cursor in one transaction, so exactly once.

Invariant: the transaction that holds the effects of an event is committed if and only if the
listener's row says, in the same transaction, that the event is settled, under the present lease.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any

import anyio
from sqlalchemy.exc import SQLAlchemyError

from sa_outbox.errors import HandlerTimeout, LeaseLost, Reject, RetryLater

from ..connection.connections import best_effort
from ..connection.errors import is_transient, is_unreachable
from ..connection.shield import to_its_end
from ..fault.attribution import Again, Lost, Refused, is_dead, meaning_of
from ..handler.deadline import Interrupted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..connection.connections import Connections
    from ..fault.suspects import Key, Suspects
    from ..handler.call import HandlerCall
    from ..handler.delivery import InFlight
    from ..handler.session import AsyncHandlerSession, HandlerSession
    from ..lease.lease import Lease
    from ..position.progress import Progress
    from ..settle.buffer import SettlementBuffer
    from ..settle.writes import Write

COMMIT_SECONDS = 30.0
"""Seconds for the statements that settle and the COMMIT; then its outcome is asked for."""
CLOSE_SECONDS = 1.0
PING_SECONDS = 5.0
"""Seconds that a session has to say whether it is alive."""
_VERDICTS = (HandlerTimeout, Interrupted, RetryLater, Reject, KeyboardInterrupt, SystemExit)
"""What is the handler's whatever became of its connection: a call that is cut off loses it."""


class HandlerTransaction:
    """Attempts in a session of its own, for one hand."""

    def __init__(
        self,
        make_session: Callable[[], Any],
        dispatch: HandlerCall,
        lease: Lease,
        progress: Progress,
        settlement: SettlementBuffer,
        *,
        connections: Connections,
        suspects: Suspects,
        outage: Callable[[], BaseException | None],
    ) -> None:
        """*outage*: what the database raised, when that is why everything is being cancelled."""
        self._make_session = make_session
        self._dispatch = dispatch
        self._lease = lease
        self._progress = progress
        self._settlement = settlement
        self._connections = connections
        self._suspects = suspects
        self._outage = outage

    async def __call__(self, items: Sequence[InFlight], argument: Any) -> BaseException | None:
        """Attempt *items* in one transaction. None: committed. Else what the handler raised.

        Raises :class:`Again` when it was not the handler's doing, and :class:`LeaseLost`.
        """
        try:
            if not self._suspects:
                return await self._attempt(items, argument)
            async with self._suspects.turn(self._keys(items)):
                return await self._attempt(items, argument)
        except Lost as lost:
            lived = await self._inquire(items, lost)
            raise Again(lost.cause, "lost" if lived else "away") from lost.cause

    async def _attempt(self, items: Sequence[InFlight], argument: Any) -> BaseException | None:
        session: Any = self._make_session()
        inner: HandlerSession = getattr(session, "sync_session", session)
        is_async = session is not inner
        abandoned = has_begun = False
        try:
            await self._connect(items, session, argument)
            inner.lend()
            has_begun = True
            try:
                error = await self._dispatch(items, argument, session)
            finally:
                # Timed out or cancelled: a thread can't be stopped, it has the session still.
                abandoned = not is_async and inner.abandon()
            if abandoned:
                return error
            wrong = inner.take_back()
            if error is not None:
                return inner.violation or await self._judge(items, error, session)
            return wrong or await self._commit(items, session, is_async=is_async)
        except anyio.get_cancelled_exc_class():
            outage = self._outage()
            if has_begun and outage is not None:
                self._suspects.lost(self._keys(items), outage, at=monotonic(), lived=False)
            raise
        finally:
            if not abandoned:
                inner.guarded = False
                await self._close(session, is_async=is_async)

    def _keys(self, items: Sequence[InFlight]) -> list[Key]:
        return [(self._lease.listener, item.position, item.event_id) for item in items]

    async def _connect(self, items: Sequence[InFlight], session: Any, argument: Any) -> None:
        # Before the handler runs: what fails here is not its failure. A connection from the pool
        # may have been dead for long: of one with which a suspect is tried it must be known.
        suspects = self._suspects
        inner: HandlerSession = getattr(session, "sync_session", session)
        asks = bool(suspects) and suspects.concerns(self._keys(items))
        try:
            await to_its_end(_run(session, inner.connect, argument, asks))
        except (SQLAlchemyError, OSError, TimeoutError) as error:
            raise Again(error, "away") from error
        if asks:
            suspects.answered(monotonic())

    async def _judge(
        self, items: Sequence[InFlight], error: BaseException, session: Any
    ) -> BaseException:
        """Whether *error* is the handler's. Its connection tells, not its type: an OSError may be
        of any service the handler called, and whatever it raises may come of a lost connection."""
        if isinstance(error, _VERDICTS):
            return error
        if await self._is_lost(session):
            raise Lost(error) from error
        if isinstance(error, SQLAlchemyError):
            if is_unreachable(error):
                self._suspects.troubled(self._keys(items), error)
                raise Again(error, "away") from error
            if is_transient(error):
                raise Again(error, "passing") from error
        return error

    async def _is_lost(self, session: Any) -> bool:
        inner: HandlerSession = getattr(session, "sync_session", session)
        if inner.is_lost():
            return True
        with anyio.move_on_after(PING_SECONDS) as asking:
            await _run(session, inner.ask)
        return asking.cancelled_caught or inner.is_lost()

    async def _inquire(self, items: Sequence[InFlight], lost: Lost) -> bool:
        """Whether the server lived when the session was lost; note it."""
        lived = False
        try:
            lived = await self._connections.lived_through(lost.at)
        finally:  # also when cancelled: because the server is away, as a rule
            self._suspects.lost(self._keys(items), lost.cause, at=lost.at, lived=lived)
        return lived

    async def _commit(
        self, items: Sequence[InFlight], session: Any, *, is_async: bool
    ) -> BaseException | None:
        async with self._settlement.lock:
            await self._settlement.settler.sure()
            if self._lease.has_ended():
                raise self._lease.lost()
            new = self._progress.after(self._settlement.leaves(items))
            writes = self._settlement.plan_in_session(items, new)
            found: BaseException | None = None
            try:
                # Shielded, with a limit: cancelled in a COMMIT, nobody would know its outcome; and
                # without a limit, a silent network would hold the process forever.
                with anyio.fail_after(COMMIT_SECONDS, shield=True):
                    if is_async:
                        await _settle_async(session, writes, self._lease)
                    else:
                        await anyio.to_thread.run_sync(_settle_sync, session, writes, self._lease)
            except LeaseLost:
                raise
            except Exception as error:  # noqa: BLE001 - of any driver
                with anyio.CancelScope(shield=True):
                    found = await self._not_committed(items, error, session, new)
            if found is not None:
                return found
            self._progress.settle([item.position for item in items], new)
            self._suspects.commits += 1
            return None

    async def _not_committed(
        self, items: Sequence[InFlight], error: Exception, session: Any, new: Any
    ) -> BaseException | None:
        """What an error while settling means. None: it is committed all the same."""
        inner: HandlerSession = getattr(session, "sync_session", session)
        cause = (error.__cause__ or error) if isinstance(error, Refused) else error
        # Timed out here, the connection is lost by our doing.
        is_lost = not isinstance(error, TimeoutError) and (inner.is_lost() or is_dead(cause))
        match meaning_of(error, cause, is_lost=is_lost):
            case "handler":
                return cause
            case "passing":
                raise Again(cause, "passing") from cause
            case "unknown":
                lost = Lost(cause)
                # The server ends what it has not committed yet, when its client is gone.
                await best_effort(_run(session, inner.invalidate), CLOSE_SECONDS)
                try:
                    if await self._settlement.settler.became(new):
                        return None
                except LeaseLost:
                    if is_lost:
                        self._suspects.lost(self._keys(items), cause, at=lost.at, lived=False)
                    raise
                if is_lost:
                    raise lost from cause
            case _:
                pass
        self._suspects.refused(self._keys(items), cause)
        raise Again(cause, "ours") from cause

    async def _close(self, session: Any, *, is_async: bool) -> None:
        if is_async:
            await best_effort(session.close(), CLOSE_SECONDS)
        else:
            await best_effort(anyio.to_thread.run_sync(session.close), CLOSE_SECONDS)


async def _run(session: Any, function: Callable[..., Any], *arguments: Any) -> None:
    """Call a method of the inner session: of an async one in its greenlet, else in a thread."""
    run_sync = getattr(session, "run_sync", None)
    if run_sync is not None:
        await run_sync(lambda _: function(*arguments))
    else:
        await anyio.to_thread.run_sync(function, *arguments)


async def _settle_async(session: AsyncHandlerSession, writes: list[Write], lease: Lease) -> None:
    try:
        for write in writes:
            result = await session.execute(write.query.clause, write.values)
            if write.fenced and result.first() is None:
                raise lease.lost()
    except SQLAlchemyError as error:
        raise Refused(str(error)) from error
    await session.commit()


def _settle_sync(session: HandlerSession, writes: list[Write], lease: Lease) -> None:
    try:
        for write in writes:
            result = session.execute(write.query.clause, write.values)
            if write.fenced and result.first() is None:
                raise lease.lost()
    except SQLAlchemyError as error:
        raise Refused(str(error)) from error
    session.commit()
