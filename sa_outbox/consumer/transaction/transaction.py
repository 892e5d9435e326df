"""A handler with a session: its effects and the cursor in one transaction, so exactly once.

The first event begins the transaction; ``group.py`` decides whether others are handled in it too,
each in its savepoint (``savepoint.py``); ``commit.py`` settles them and commits.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any

import anyio
from sqlalchemy.exc import SQLAlchemyError

from sa_outbox.errors import HandlerMustNotCommit, HandlerTimeout, Reject, RetryLater
from sa_outbox.sql.server.transactions import end_backend

from ..connection.connections import Query, best_effort
from ..connection.errors import is_transient, is_unreachable
from ..connection.shield import to_its_end
from ..fault.attribution import Again, Alone, Lost
from ..handler.deadline import Interrupted
from .commit import Committer
from .group import GroupBroken
from .lent_session import CLOSE_SECONDS, LentSession
from .savepoint import EventSavepoint

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from ..connection.connections import Connections
    from ..fault.suspects import Suspects
    from ..handler.call import HandlerCall
    from ..handler.delivery import InFlight
    from ..lease.lease import Lease
    from ..position.progress import Progress
    from ..settle.buffer import SettlementBuffer
    from .group import Group

_VERDICTS = (HandlerTimeout, Interrupted, RetryLater, Reject, KeyboardInterrupt, SystemExit)
"""What is the handler's whatever became of its connection: a call that is cut off loses it."""
_END = Query(end_backend())
_JOINED = {"join_transaction_mode": "rollback_only"}


class HandlerTransaction:
    """Attempts in a session of its own, for one task."""

    def __init__(
        self,
        make_session: Callable[..., Any],
        call: HandlerCall,
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
        self._call = call
        self._connections = connections
        self._suspects = suspects
        self._outage = outage
        self._backend: int | None = None
        """The server process of the attempt."""
        self._commit = Committer(lease, progress, settlement, suspects)

    async def __call__(self, group: Group, argument: Any) -> BaseException | None:
        """Attempt the group's items in one transaction, and what it takes in. None: committed, all
        but the one that failed. Else what the handler of the first raised, or why what all of them
        did can't be committed.

        Raises :class:`Again` when it was not the handler's doing, :class:`GroupBroken`, and
        :class:`LeaseLost`.
        """
        try:
            if not self._suspects.exist:
                return await self._attempt(group, argument)
            async with self._suspects.turn(self._commit.keys(group.items)):
                return await self._attempt(group, argument)
        except GroupBroken:
            await self._end_backend()
            raise
        except Lost as lost:
            lived = await self._inquire(group.all, lost)
            if lived:
                await self._end_backend()
            raise Again(lost.cause, "lost" if lived else "away") from lost.cause

    async def _attempt(self, group: Group, argument: Any) -> BaseException | None:
        session = LentSession(self._make_session())
        has_begun = False
        try:
            await self._connect(group.items, session, argument)
            session.inner.lend()
            self._backend = session.inner.backend_pid()
            has_begun = True
            error = await self._handle(group.items, argument, session, session)
            if session.is_abandoned:
                await self._end_backend()
                return error
            wrong = session.inner.take_back()
            if error is not None:
                error = session.inner.violation or await self._judge(group.items, error, session)
                if session.inner.is_lost():
                    await self._end_backend()
                return error
            if wrong is not None:
                return wrong
            await self._take_more(group, session)
            return await self._commit(group.items, session)
        except anyio.get_cancelled_exc_class():
            outage = self._outage()
            if has_begun and outage is not None:
                keys = self._commit.keys(group.all)
                self._suspects.lost(keys, outage, at=monotonic(), lived=False)
            raise
        finally:
            if not session.is_abandoned:
                await session.close()

    async def _handle(
        self, items: Sequence[InFlight], argument: Any, session: LentSession, host: LentSession
    ) -> BaseException | None:
        try:
            return await self._call(items, argument, session.session)
        finally:
            # Timed out or cancelled: a thread can't be stopped, it has the session still, and the
            # connection.
            if not session.is_async and session.inner.abandon():
                session.is_abandoned = host.is_abandoned = True

    async def _connect(
        self, items: Sequence[InFlight], session: LentSession, argument: Any
    ) -> None:
        # Before the handler runs: what fails here is not its failure. A connection from the pool
        # may have been dead for long: of one with which a suspect is tried it must be known.
        suspects = self._suspects
        asks = suspects.exist and suspects.concerns(self._commit.keys(items))
        try:
            await to_its_end(session.run(session.inner.connect, argument, asks))
        except (SQLAlchemyError, OSError, TimeoutError) as error:
            raise Again(error, "away") from error
        if asks:
            suspects.answered(monotonic())

    async def _judge(
        self, items: Sequence[InFlight], error: BaseException, session: LentSession
    ) -> BaseException:
        """Whether *error* is the handler's. Its connection tells, not its type: an OSError may be
        of any service the handler called, and whatever it raises may come of a lost connection."""
        if isinstance(error, _VERDICTS):
            return error
        if await session.is_lost():
            raise Lost(error) from error
        if isinstance(error, SQLAlchemyError):
            if is_unreachable(error):
                self._suspects.troubled(self._commit.keys(items), error)
                raise Again(error, "away") from error
            if is_transient(error):
                raise Again(error, "passing") from error
        return error

    async def _inquire(self, items: Sequence[InFlight], lost: Lost) -> bool:
        """Whether the server lived when the session was lost; note it."""
        lived = False
        try:
            lived = await self._connections.lived_through(lost.at)
        finally:  # also when cancelled: because the server is away, as a rule
            keys = self._commit.keys(items)
            self._suspects.lost(keys, lost.cause, at=lost.at, lived=lived)
        return lived

    async def _end_backend(self) -> None:
        """An attempt was cut off, and the server may not know it: a statement runs on, or a thread
        that can't be stopped has the connection. Others would wait for its locks, and all of a
        group for their own, until their time is up."""
        if self._backend is not None:
            await best_effort(self._connections.rows(_END, pid=self._backend), CLOSE_SECONDS)

    # The events after the first

    async def _take_more(self, group: Group, host: LentSession) -> None:
        """Handle what else waits, in the same transaction. Afterwards all of the group's items can
        be committed, as far as the server knows."""
        if not group.wants_more(host.inner.savepoints):
            return
        savepoint = EventSavepoint(host)
        while group.wants_more(host.inner.savepoints):
            if not await self._keep(group, savepoint, host, savepoint.renew):
                return
            item = group.take()
            if item is None:
                break
            try:
                await self._attempt_joined(item, savepoint, host)
            except _Failed as failed:
                group.fail(failed.error)
                return
            group.succeeded()
        await self._keep(group, savepoint, host, savepoint.release)

    async def _keep(
        self,
        group: Group,
        savepoint: EventSavepoint,
        host: LentSession,
        send: Callable[[], Awaitable[None]],
    ) -> bool:
        """Release what the last event did. False: the server refuses that, and it is the doing of
        this event, for those before it were released; or no savepoint can be set at all."""
        try:
            await send()
        except Exception as error:
            if await host.is_lost():
                raise Lost(error) from error
            if savepoint:
                last = group.items[-1]
                if len(group.items) == 1:
                    raise GroupBroken(last) from error
                await self._roll_back(last, savepoint, host)
                group.spoiled(Alone(error))
            return False
        return True

    async def _attempt_joined(
        self, item: InFlight, savepoint: EventSavepoint, host: LentSession
    ) -> None:
        """Attempt *item* in its savepoint. Raises :class:`_Failed` when that is rolled back."""
        try:
            event = self._call.load(item)
        except BaseException as unreadable:
            raise _Failed(unreadable) from unreadable
        session = LentSession(self._make_session(**_JOINED))
        savepoint.is_fresh = False
        if not session.is_async:
            session.inner.after_handler = lambda: savepoint.pass_on(session.inner)
        error: BaseException | None
        try:
            await session.join(host, event)
            error = await self._handle([item], event, session, host)
            if error is None and savepoint.is_fresh:
                return
            if not session.is_abandoned and not savepoint.is_fresh:
                wrong = session.inner.take_back()
                if error is None and wrong is None and savepoint.is_intact:
                    # Nothing is committed yet: its hooks run, and events that wait are written.
                    await session.commit_joined()
                    return
                error = session.inner.violation or error or wrong
        except Exception as raised:  # noqa: BLE001 - hooks on the session may raise anything
            error = raised
        finally:
            if not session.is_abandoned:
                session.leave()
        # Fresh: it returned in its thread as its time was up, and can't be undone alone.
        if session.is_abandoned or error is None or savepoint.is_fresh:
            raise GroupBroken(item)
        raise _Failed(await self._judge_joined(item, error, savepoint, host))

    async def _judge_joined(
        self, item: InFlight, error: BaseException, savepoint: EventSavepoint, host: LentSession
    ) -> BaseException:
        """Undo what *item* did. Returns what its failure is. An error of the database may be due to
        its group, whose locks and settings it had: it is attempted alone, uncounted."""
        is_verdict = isinstance(error, (*_VERDICTS, HandlerMustNotCommit))
        if not is_verdict and await host.is_lost():
            raise Lost(error) from error
        await self._roll_back(item, savepoint, host)
        if is_verdict or not isinstance(error, SQLAlchemyError):
            return error  # also one that is to be attempted alone
        if is_unreachable(error):
            self._suspects.troubled(self._commit.keys([item]), error)
            return Again(error, "away")
        return Alone(error)

    async def _roll_back(
        self, item: InFlight, savepoint: EventSavepoint, host: LentSession
    ) -> None:
        try:
            await savepoint.roll_back()
        except Exception as error:
            raise GroupBroken(item) from error
        if host.inner.is_lost() or not host.inner.is_still_begun():
            raise GroupBroken(item)


class _Failed(Exception):
    """An event after the first failed, with *error*, and left nothing behind."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error
