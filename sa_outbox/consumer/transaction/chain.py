"""Several events of a sync handler, one after the other in one call of a thread.

To go to a thread and to come back costs as much as a statement. So the thread gets what is reserved
for the group, and handles one event after the other as long as each is simply done: it returned
None, and its savepoint is released. The loop watches meanwhile: the time limit, which is each
event's own, its cancellation, the lease.

Invariant: the thread changes the group only while somebody waits for it; once it is abandoned, it
ends with the handler that it is in, and drops the connection. With the first event that is not
simply done it comes back, and the loop decides as for one that was called by itself.
"""

from __future__ import annotations

from contextlib import suppress
from contextvars import copy_context
from time import monotonic
from typing import TYPE_CHECKING, Any

from sa_outbox.event.causation import handled
from sa_outbox.event.event import left_results

from ..handler.thread_call import ThreadDoor, in_thread

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable

    from sa_outbox.event.event import Event

    from ..handler.call import HandlerCall
    from ..handler.session import HandlerSession
    from .group import Group
    from .savepoint import EventSavepoint


class ThreadChain:
    """*events*: those that are reserved in *group*, as far as they can be read. *host*: the session
    that began the transaction."""

    def __init__(
        self,
        call: HandlerCall,
        make_session: Callable[[], HandlerSession],
        group: Group,
        savepoint: EventSavepoint,
        host: HandlerSession,
        events: deque[Event[Any]],
    ) -> None:
        self._call = call
        self._make_session = make_session
        self._group = group
        self._savepoint = savepoint
        self._host = host
        self._events = events
        self._door = ThreadDoor()
        self._context = copy_context()
        self.session: HandlerSession | None = None
        """That of the event that was called last, if it is not done."""

    async def run(self) -> BaseException | None:
        """Handle them. The last one is ``group.now`` if it is not done: what it raised."""
        call, deadline = self._call, self._call.deadline
        deadline.begin(monotonic())
        try:
            value, raised = await in_thread(call.threads, self._handle)
        except BaseException as error:  # noqa: BLE001 - a cancellation, and whose it is
            return call.judge(error)
        finally:
            deadline.is_calling = False
        if deadline.is_over:  # as the last one returned
            return call.cut_off()
        if raised is not None or value is None:
            return raised
        return call.returned.judge(value)

    def abandon(self) -> bool:
        """Leave the connection to the thread that still uses it; False if none does, or will."""
        return self._door.abandon()

    # In the thread

    def _handle(self) -> tuple[Any, BaseException | None]:
        if not self._door.enter():
            return None, None
        try:
            while self._door.if_awaited(self._begin):
                value, raised = self._context.copy().run(self._call_next)
                if raised is not None or value is not None:
                    return value, raised
                if not self._door.if_awaited(self._keep):
                    break
            return None, None
        finally:
            if self._door.leave():
                self._host.guarded = False
                with suppress(Exception):
                    self._host.invalidate()

    def _begin(self) -> bool:
        """Whether there is a next one: it begins."""
        group = self._group
        if not self._events or not group.may_go_on(self._host.savepoints):
            return False
        self._savepoint.is_fresh = False
        self._call.goes_on(self._events[0])
        return group.take() is not None

    def _call_next(self) -> tuple[Any, BaseException | None]:
        call, event, item = self._call, self._events.popleft(), self._group.now
        assert item is not None  # noqa: S101 - for the type checker: it has begun
        began = monotonic()
        try:
            session = self._make_session()
            session.join(self._host)
            session.connect(event)
            session.lend(with_door=False)  # the chain has one for all of them
            self.session = session
            handled.set(event)
            call.prelude.play([item])
            value = call.handler(event, session)
            session.flush()
            if value is None:
                self._savepoint.pass_on(session)
            if left_results:
                call.note_result(item, event)
        except BaseException as error:  # noqa: BLE001 - GeneratorExit and the like are failures too
            return None, error
        else:
            return value, None
        finally:
            item.seconds = monotonic() - began

    def _keep(self) -> bool:
        """Whether the one that was called is simply done."""
        deadline = self._call.deadline
        if not self._savepoint.is_fresh or deadline.is_over or deadline.is_exceeded(monotonic()):
            return False
        if self.session is not None:
            self.session.guarded = False
            self.session.close()
        self.session = None
        self._group.succeeded()
        return True
