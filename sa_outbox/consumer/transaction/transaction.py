"""A handler with a session: its effects and the cursor in one transaction, so exactly once.

The first event begins the transaction; ``group.py`` decides whether others are handled in it too,
each in its savepoint (``joined.py``); ``lent_session.py`` settles them and commits.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any

import anyio
from sqlalchemy.exc import SQLAlchemyError

from sa_outbox.sql.server.transactions import end_backend

from ..connection.connections import Query, best_effort
from ..connection.errors import is_transient, is_unreachable
from ..connection.shield import to_its_end
from ..fault.attribution import Again, Lost
from .group import GroupBroken
from .joined import VERDICTS, JoinedEvents
from .lent_session import CLOSE_SECONDS, Committer, LentSession

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..connection.connections import Connections
    from ..fault.suspects import Suspects
    from ..handler.call import HandlerCall
    from ..handler.delivery import InFlight
    from ..lease.lease import Lease
    from ..position.progress import Progress
    from ..settle.buffer import SettlementBuffer
    from .group import Group

_END = Query(end_backend())


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
        turn_to: Callable[[InFlight], HandlerTransaction] | None = None,
    ) -> None:
        """*outage*: why everything is being cancelled, if the database raised it. *turn_to*: with
        several handlers, the one of an event that joins; it is called next."""
        self.make_session = make_session
        self.call = call
        self._connections = connections
        self._suspects = suspects
        self._outage = outage
        self._backend: int | None = None  # the server process of the attempt
        self._commit = Committer(lease, progress, settlement, suspects)
        self._joined = JoinedEvents(self, suspects, self._commit.keys, turn_to)

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
        session = LentSession(self.make_session())
        has_begun = False
        try:
            await self._connect(group.items, session, argument)
            session.inner.lend(with_door=not session.is_async)
            self._backend = session.inner.backend_pid()
            has_begun = True
            error = await self.attempt_in(group.items, argument, session, session)
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
            if group.wants_more(session.inner.savepoints):
                await self._joined.take_more(group, session)
            return await self._commit(group.items, session)
        except anyio.get_cancelled_exc_class():
            outage = self._outage()
            if has_begun and outage is not None:
                keys = self._commit.keys(group.all)
                self._suspects.lost(keys, outage, at=session.alive_at, lived=False)
            raise
        finally:
            if not session.is_abandoned:
                await session.close()

    async def attempt_in(
        self, items: Sequence[InFlight], argument: Any, session: LentSession, host: LentSession
    ) -> BaseException | None:
        """Call the handler with *session*, in *host*'s transaction; what it raised."""
        try:
            return await self.call(items, argument, session.session)
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
        session.alive_at = monotonic()

    async def _judge(
        self, items: Sequence[InFlight], error: BaseException, session: LentSession
    ) -> BaseException:
        """Whether *error* is the handler's. Its connection tells, not its type: an OSError may be
        of any service the handler called, and whatever it raises may come of a lost connection."""
        if isinstance(error, VERDICTS):
            return error
        if await session.is_lost():
            raise Lost(error, session.alive_at) from error
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
            lived = await self._connections.lived_through(lost.alive_at)
        finally:  # also when cancelled: because the server is away, as a rule
            keys = self._commit.keys(items)
            self._suspects.lost(keys, lost.cause, at=lost.alive_at, lived=lived)
        return lived

    async def _end_backend(self) -> None:
        """An attempt was cut off, and the server may not know it: a statement runs on, or a thread
        that can't be stopped has the connection. Others would wait for its locks, and all of a
        group for their own, until their time is up."""
        if self._backend is not None:
            await best_effort(self._connections.rows(_END, pid=self._backend), CLOSE_SECONDS)
