"""The events of a group after the first: in the transaction of the first, each in its savepoint.

An async handler is called for one after the other. A sync one is called in a thread, and as long as
all goes well, for one after the other there (``chain.py``).
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from sqlalchemy.exc import SQLAlchemyError

from sa_outbox.errors import HandlerMustNotCommit, HandlerTimeout, Reject, RetryLater

from ..connection.errors import is_unreachable
from ..fault.attribution import Again, Alone, Lost
from ..handler.deadline import Interrupted
from .chain import ThreadChain
from .group import GroupBroken
from .lent_session import LentSession
from .savepoint import EventSavepoint

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from sa_outbox.event.event import Event

    from ..fault.suspects import Key, Suspects
    from ..handler.call import HandlerCall
    from ..handler.delivery import InFlight
    from .group import Group

VERDICTS = (HandlerTimeout, Interrupted, RetryLater, Reject, KeyboardInterrupt, SystemExit)
"""What is the handler's whatever became of its connection: a call that is cut off loses it."""
_JOINED = {"join_transaction_mode": "rollback_only"}


class Attempts(Protocol):
    """Calls one handler, with a session of its kind."""

    @property
    def make_session(self) -> Callable[..., Any]: ...

    @property
    def call(self) -> HandlerCall: ...

    async def attempt_in(
        self, items: Sequence[InFlight], argument: Any, session: LentSession, host: LentSession
    ) -> BaseException | None: ...


class JoinedEvents:
    """*attempts*: of the listener's handler; *turn_to*: with several handlers, of that of an event
    that joins, which is called next."""

    def __init__(
        self,
        attempts: Attempts,
        suspects: Suspects,
        keys: Callable[[Sequence[InFlight]], list[Key]],
        turn_to: Callable[[InFlight], Attempts] | None,
    ) -> None:
        self._attempts = attempts
        self._suspects = suspects
        self._keys = keys
        self._turn_to = turn_to

    async def take_more(self, group: Group, host: LentSession) -> None:
        """Handle what else waits, in this transaction. Then the server can commit all of it."""
        savepoint = EventSavepoint(host)
        try:
            while group.wants_more(host.inner.savepoints):
                if not await self._keep(group, savepoint, host, savepoint.renew):
                    return
                if not await self._attempt_next(group, savepoint, host):
                    break
        except _Failed as failed:
            group.fail(failed.error)
            return
        finally:
            group.give_back()
        await self._keep(group, savepoint, host, savepoint.release)

    async def _attempt_next(
        self, group: Group, savepoint: EventSavepoint, host: LentSession
    ) -> bool:
        """The next event, or several of them. False: another task has just taken it."""
        events = self._readable(group) if self._may_chain(host) else ()
        if events and group.may_go_on(host.inner.savepoints):
            await self._attempt_chain(group, events, savepoint, host)
            return True
        item = group.take()
        if item is None:
            return False
        await self._attempt_joined(item, savepoint, host)
        group.succeeded()
        return True

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
                raise Lost(error, host.alive_at) from error
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
        its = self._attempts if self._turn_to is None else self._turn_to(item)
        try:
            event = its.call.load(item)
        except BaseException as unreadable:
            raise _Failed(unreadable) from unreadable
        session = LentSession(its.make_session(**_JOINED))
        savepoint.is_fresh = False
        if not session.is_async:
            session.inner.after_handler = lambda: savepoint.pass_on(session.inner)
        try:
            await session.join(host, event)
            error = await its.attempt_in([item], event, session, host)
        except BaseException as raised:
            if not session.is_abandoned:
                session.leave()
            if not isinstance(raised, Exception):
                raise
            # Hooks on the session may raise anything.
            raise _Failed(await self._judge(item, raised, savepoint, host)) from raised
        await self._conclude(item, error, session, savepoint, host)

    # Several in one call of a thread

    def _may_chain(self, host: LentSession) -> bool:
        call = self._attempts.call
        is_alike = self._turn_to is None and not host.is_async
        return is_alike and call.can_chain and not call.prelude.reports_starts

    def _readable(self, group: Group) -> deque[Event[Any]]:
        """The events that are reserved, up to the first that can't be read."""
        events: deque[Event[Any]] = deque()
        for item in group.reserve():
            try:
                events.append(self._attempts.call.load(item))
            except BaseException:  # noqa: BLE001 - an upcaster is the user's code; it is asked again
                break
        return events

    async def _attempt_chain(
        self,
        group: Group,
        events: deque[Event[Any]],
        savepoint: EventSavepoint,
        host: LentSession,
    ) -> None:
        its = self._attempts
        make = partial(its.make_session, **_JOINED)
        chain = ThreadChain(its.call, make, group, savepoint, host.inner, events)
        try:
            error = await chain.run()
        finally:
            host.is_abandoned = chain.abandon() or host.is_abandoned
        item = group.now
        if item is None:
            if error is not None or host.is_abandoned:  # its time was up as it returned
                raise GroupBroken(group.items[-1])
            return
        session = None if chain.session is None else LentSession(chain.session)
        await self._conclude(item, error, session, savepoint, host)
        group.succeeded()

    # What becomes of one

    async def _conclude(
        self,
        item: InFlight,
        error: BaseException | None,
        session: LentSession | None,
        savepoint: EventSavepoint,
        host: LentSession,
    ) -> None:
        """Its handler was called, and raised *error*. Raises :class:`_Failed` when it is undone."""
        try:
            if error is None and savepoint.is_fresh:
                return
            if session is not None and not host.is_abandoned and not savepoint.is_fresh:
                wrong = session.inner.take_back()
                if error is None and wrong is None and savepoint.is_intact:
                    # Nothing is committed yet: its hooks run, and events that wait are written.
                    await session.commit_joined()
                    return
                error = session.inner.violation or error or wrong
        except Exception as raised:  # noqa: BLE001 - hooks on the session may raise anything
            error = raised
        finally:
            if session is not None and not host.is_abandoned:
                session.leave()
        # Fresh: it returned in its thread as its time was up, and can't be undone alone.
        if host.is_abandoned or error is None or savepoint.is_fresh:
            raise GroupBroken(item)
        raise _Failed(await self._judge(item, error, savepoint, host))

    async def _judge(
        self, item: InFlight, error: BaseException, savepoint: EventSavepoint, host: LentSession
    ) -> BaseException:
        """Undo what *item* did. Returns what its failure is. An error of the database may be due to
        its group, whose locks and settings it had: it is attempted alone, uncounted."""
        is_verdict = isinstance(error, (*VERDICTS, HandlerMustNotCommit))
        if not is_verdict and await host.is_lost():
            raise Lost(error, host.alive_at) from error
        await self._roll_back(item, savepoint, host)
        if is_verdict or not isinstance(error, SQLAlchemyError):
            return error  # also one that is to be attempted alone
        if is_unreachable(error):
            self._suspects.troubled(self._keys([item]), error)
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
