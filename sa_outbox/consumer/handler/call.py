"""Call a handler: its time limit, its errors."""

from __future__ import annotations

import asyncio
from contextvars import copy_context
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

import anyio

from sa_outbox.errors import HandlerTimeout
from sa_outbox.event import stored, tracing
from sa_outbox.event.causation import HandledBatch, handled
from sa_outbox.event.event import left_results
from sa_outbox.event.origin import origin_of
from sa_outbox.observe import HandlerIgnoredCancel

from .arguments import EventLoader
from .call_context import Prelude, has_changed, isolated
from .deadline import Deadline, Interrupted
from .returned import ReturnedValues
from .thread_call import call_in_thread, in_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import timedelta

    from sa_outbox.declare.listener import Listener
    from sa_outbox.event.event import Event
    from sa_outbox.observe import Observers

    from .delivery import InFlight

STRETCH_SECONDS = 0.005
"""After so long a task lets others run, when its handler never waits for anything."""


class Feed(Protocol):
    """Where a sweep reports what is done, and learns that it should end."""

    @property
    def is_stopping(self) -> bool: ...

    def done(self, item: InFlight) -> None: ...


class Gate(Protocol):
    @property
    def is_closed(self) -> bool: ...


class HandlerCall:
    """Calls one listener's handler, for one task: one call at a time."""

    def __init__(
        self,
        listener: Listener,
        threads: anyio.CapacityLimiter,
        observers: Observers,
        on_stuck: Callable[[], None],
        lifetime: Callable[[str], timedelta],
        owner: str,
    ) -> None:
        self._listener = listener
        self.handler: Callable[..., Any] = listener.handler
        self._call = call = listener.call
        self.threads: anyio.CapacityLimiter = threads
        self._observers = observers
        self._stuck = on_stuck
        self._lifetime = lifetime
        self.argument: Any = None
        """The event or events being handled."""
        self._timeout = None if listener.timeout is None else listener.timeout.total_seconds()
        self.deadline: Deadline = Deadline(self._timeout, self._ignored)
        self.returned: ReturnedValues = ReturnedValues(listener.name, observers)
        self._tracing = tracing.present
        is_bare = call.is_async and call.session == "none" and not call.batch
        self.is_plain: bool = is_bare and self._tracing is None
        """Whether ``sweep`` may be used."""
        self.can_chain: bool = self._tracing is None and not (call.is_async or call.batch)
        """Whether a thread may call it for one event after the other."""
        self.load: EventLoader = EventLoader(listener, is_traced=self._tracing is not None)
        self.give_way_at: float = 0.0
        self._context_is_used = False
        self.prelude: Prelude = Prelude(listener, observers, owner)

    def close(self) -> None:
        self.deadline.leave()

    def goes_on(self, event: Event[Any]) -> None:
        """In a thread: the next of several calls begins."""
        self.argument = event
        self.deadline.goes_on(monotonic())

    async def __call__(
        self, items: Sequence[InFlight], argument: Any, session: Any = None
    ) -> BaseException | None:
        """Call the handler with *argument* (an event or a list) and return what it raised.

        Raises only when the consumer itself is being cancelled.
        """
        if self._tracing is None:
            return await self._attempt(items, argument, session)
        batch = self._call.batch
        events = argument if batch else (argument,)
        attempt = 1 + max(item.attempts for item in items)
        name = self._listener.name
        with self._tracing.handling(name, events, attempt=attempt, batch=batch) as span:
            error = await self._attempt(items, argument, session)
            if error is not None:
                span.failed(error)
            return error

    async def _attempt(
        self, items: Sequence[InFlight], argument: Any, session: Any
    ) -> BaseException | None:
        if self._is_unwanted(items, argument):
            return Interrupted(has_begun=False)
        self.argument = argument
        began = monotonic()
        self.deadline.begin(began)
        try:
            error = await isolated(self._run(items, argument, session))
        except BaseException as raised:  # noqa: BLE001 - GeneratorExit and the like are failures too
            return self.judge(raised)
        finally:
            self.deadline.is_calling = False
            seconds = monotonic() - began
            for item in items:
                item.seconds = seconds
        if self.deadline.is_over:  # it was cancelled and yet returned normally
            return self.cut_off()
        if error is None and left_results:
            events = argument if self._call.batch else (argument,)
            for item, event in zip(items, events, strict=True):
                self.note_result(item, event)
        return error

    async def sweep(
        self,
        feed: Feed,
        gate: Gate,
        take: Callable[[], InFlight | None],
        unreadable: Callable[[InFlight, BaseException], None],
    ) -> tuple[InFlight, BaseException] | None:
        """For a plain handler: call it for one event after the other, until one fails. None:
        nothing is left, or somebody wants it to end."""
        failed = None
        while failed is None:
            # One copy of the context for many events, and another one after a handler has set
            # something in it: for the next event that was never set.
            self._context_is_used = False
            failed = await isolated(self._sweep(feed, gate, take, unreadable))
            if not self._context_is_used:
                break
        return failed

    async def _sweep(
        self,
        feed: Feed,
        gate: Gate,
        take: Callable[[], InFlight | None],
        unreadable: Callable[[InFlight, BaseException], None],
    ) -> tuple[InFlight, BaseException] | None:
        """What every event costs is spent here."""
        handler, deadline = self.handler, self.deadline
        read, wanted = self.load.read, self.load.wanted
        prelude, now = self.prelude.begin(), monotonic()
        while not (feed.is_stopping or gate.is_closed):
            item = take()
            if item is None:
                return None
            item.outcome, item.failure = "done", None
            try:
                event = self.argument = read(item.row, wanted)
            except BaseException as error:  # noqa: BLE001 - an upcaster is the user's code
                unreadable(item, error)
                continue
            if item.attempts:
                stored.now_attempt(event, item.attempts + 1)
            handled.set(event)
            if prelude is not None:
                prelude(item)
            context = copy_context()
            deadline.begin(now)
            try:
                value = await handler(event)
            except BaseException as raised:  # noqa: BLE001 - GeneratorExit is a failure too
                deadline.is_calling, item.seconds = False, monotonic() - now
                return item, self.judge(raised)
            began, now = now, monotonic()
            deadline.is_calling, item.seconds = False, now - began
            if deadline.is_over:
                return item, self.cut_off()
            if value is not None and (wrong := self.returned.judge(value)) is not None:
                return item, wrong
            if left_results:
                self.note_result(item, event)
            item.attempts += 1
            feed.done(item)
            if now >= self.give_way_at:
                await self.give_way()
                now = monotonic()
            if has_changed(context):
                self._context_is_used = True
                return None
        return None

    async def give_way(self) -> None:
        """Else, for a whole batch, no other listener would run, nothing be settled and no lease
        renewed: slow handlers that never wait would lose it, and handle the batch again."""
        await anyio.sleep(0)
        self.give_way_at = monotonic() + STRETCH_SECONDS

    def request_cancel(self, position: int) -> None:
        """That event was cancelled: if it is being handled, tell its handler."""
        if self.deadline.is_calling:
            argument = self.argument
            for event in argument if self._call.batch else (argument,):
                if event.position == position:
                    stored.now_cancel_requested(event)
                    if self._listener.cancellable:
                        self.deadline.interrupt()

    def _is_unwanted(self, items: Sequence[InFlight], argument: Any) -> bool:
        """Whether the only event was cancelled after a handler task took it. In a batch, such
        events are marked."""
        if not self._call.batch:
            return items[0].cancel_requested
        for item, event in zip(items, argument, strict=True):
            if item.cancel_requested:
                stored.now_cancel_requested(event)
        return False

    def note_result(self, item: InFlight, event: Event[Any]) -> None:
        reference = event.result_ref
        if reference is not None:
            item.result = reference, self._lifetime(item.event_type).total_seconds()

    async def _run(
        self, items: Sequence[InFlight], argument: Any, session: Any
    ) -> BaseException | None:
        handled.set(HandledBatch(argument) if self._call.batch else argument)
        self.prelude.play(items)
        arguments = (argument,) if self._call.session == "none" else (argument, session)
        if self._call.is_async:
            value = await self.handler(*arguments)
        else:
            value, raised = await self.run_in_thread(arguments)
            if raised is not None:
                return raised
        error = None if value is None else self.returned.judge(value)
        if session is not None and error is None and self._call.is_async:
            await session.flush_if_changed()
        return error

    async def run_in_thread(self, arguments: tuple[Any, ...]) -> tuple[Any, BaseException | None]:
        """What a sync handler returned, or raised."""
        return await in_thread(self.threads, call_in_thread, self.handler, arguments)

    def judge(self, raised: BaseException) -> BaseException:
        """The handler's failure; raises *raised* again if the consumer itself is being
        cancelled."""
        cancelled = isinstance(raised, asyncio.CancelledError)
        if self.deadline.is_over:
            return self.cut_off(raised if cancelled else None)
        if cancelled:
            if anyio.current_effective_deadline() == -inf:
                raise raised
            # Only the handler wanted it: some cancel their own task.
            task = asyncio.current_task()
            while task is not None and task.cancelling():
                task.uncancel()
        return raised

    def cut_off(self, cancellation: BaseException | None = None) -> BaseException:
        """Why the call was cancelled. *cancellation* is raised if we did not cause it."""
        late = self.deadline.is_late
        if not self.deadline.leave(cancellation) and cancellation is not None:
            raise cancellation
        if late:
            return HandlerTimeout(f"the handler took longer than {self._timeout} s")
        return Interrupted(has_begun=True)

    def _ignored(self, seconds: float) -> None:
        event = self.argument[0] if self._call.batch else self.argument
        identity = (event.event_id, event.event_type, event.position, event.attempt)
        seen = HandlerIgnoredCancel(self._listener.name, *identity, seconds, origin_of(event))
        self._observers.emit(seen)
        self._stuck()
