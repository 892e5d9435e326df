"""Calling a handler: its arguments, its time limit, whatever it raises."""

from __future__ import annotations

import asyncio
import inspect
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any

import anyio

from sa_outbox import tracing
from sa_outbox.causation import HandledBatch, handled, handled_batch
from sa_outbox.errors import HandlerTimeout, OutboxError
from sa_outbox.event import left_results, now_cancel_requested
from sa_outbox.observe import HandlerIgnoredCancel, HandlerReturned

from .deadline import Deadline
from .item import load_event, load_unread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextvars import Token
    from datetime import timedelta

    from sa_outbox.event import Event
    from sa_outbox.listener import Listener
    from sa_outbox.observe import Observers

    from .item import Item
    from .session import HandlerSession


class Interrupted(Exception):
    """Somebody cancelled the event, and the handler was cancelled, or not called at all."""

    def __init__(self, *, has_begun: bool) -> None:
        super().__init__("cancelled by request")
        self.has_begun = has_begun


class Dispatch:
    """Calls one listener's handler, for one hand: one call at a time."""

    def __init__(
        self,
        listener: Listener,
        threads: anyio.CapacityLimiter,
        observers: Observers,
        on_stuck: Callable[[], None],
        lifetime: Callable[[str], timedelta],
    ) -> None:
        self._listener = listener
        self._handler = listener.handler
        self._call = listener.call
        self._load = load_event if listener.forwarding is None else load_unread
        self._threads = threads
        self._observers = observers
        self._stuck = on_stuck
        self._lifetime = lifetime
        self.argument: Any = None
        """The event or the events that are being handled."""
        timeout = listener.timeout
        self._timeout = None if timeout is None else timeout.total_seconds()
        self.deadline = Deadline(self._timeout, self._ignored)
        self._told_of_value = False
        self._tracing = tracing.present

    @property
    def is_traced(self) -> bool:
        return self._tracing is not None

    def close(self) -> None:
        self.deadline.leave()

    def load(self, item: Item) -> Event[Any]:
        return self._load(item.row, self._call.payload_class)

    def load_all(self, items: Sequence[Item]) -> list[Event[Any]]:
        load, payload_class = self._load, self._call.payload_class
        return [load(item.row, payload_class) for item in items]

    async def __call__(
        self, items: Sequence[Item], argument: Any, session: Any = None
    ) -> BaseException | None:
        """Call the handler with *argument* (an event or a list) and say what it raised.

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
        self, items: Sequence[Item], argument: Any, session: Any
    ) -> BaseException | None:
        if self._is_unwanted(items, argument):
            return Interrupted(has_begun=False)
        self.argument = argument
        cause: Token[Any] | None = None
        batch: Token[Any] | None = None
        if self._call.batch:
            batch = handled_batch.set(HandledBatch(argument))
        else:
            cause = handled.set(argument)
        began = monotonic()
        self.deadline.begin(began)
        try:
            error = await self._run(argument, session)
        except BaseException as raised:  # noqa: BLE001 - GeneratorExit and the like are failures too
            return self.judge(raised)
        finally:
            self.deadline.is_calling = False
            seconds = monotonic() - began
            for item in items:
                item.seconds = seconds
            if cause is not None:
                handled.reset(cause)
            if batch is not None:
                handled_batch.reset(batch)
        if self.deadline.is_over:  # and yet it ended as if nothing had happened
            return self.cut_off()
        if error is None and left_results:
            for item, event in zip(
                items, argument if self._call.batch else (argument,), strict=True
            ):
                self.note_result(item, event)
        return error

    def request_cancel(self, position: int) -> None:
        """Somebody cancelled that event: if it is being handled, its handler is told."""
        if self.deadline.is_calling:
            argument = self.argument
            for event in argument if self._call.batch else (argument,):
                if event.position == position:
                    now_cancel_requested(event)
                    if self._listener.cancellable:
                        self.deadline.interrupt()

    def _is_unwanted(self, items: Sequence[Item], argument: Any) -> bool:
        """Whether the only event was cancelled since a hand has it. Of a batch those are marked."""
        if not self._call.batch:
            return items[0].cancel_requested
        for item, event in zip(items, argument, strict=True):
            if item.cancel_requested:
                now_cancel_requested(event)
        return False

    def note_result(self, item: Item, event: Event[Any]) -> None:
        reference = event.result_ref
        if reference is not None:
            item.result = reference, self._lifetime(item.event_type).total_seconds()

    async def _run(self, argument: Any, session: Any) -> BaseException | None:
        arguments = (argument,) if self._call.session == "none" else (argument, session)
        if self._call.is_async:
            value = await self._handler(*arguments)
        else:
            # Abandoned when its time is over: a thread can't be stopped. What it does through
            # its session is never committed.
            value, raised = await anyio.to_thread.run_sync(
                self._in_thread, arguments, limiter=self._threads, abandon_on_cancel=True
            )
            if raised is not None:
                return raised
        error = None if value is None else self.check_value(value)
        if session is not None and error is None and self._call.is_async:
            await session.flush()
        return error

    def judge(self, raised: BaseException) -> BaseException:
        """The handler's failure; *raised* again if the consumer itself is being cancelled."""
        cancelled = isinstance(raised, asyncio.CancelledError)
        if self.deadline.is_over:
            return self.cut_off(raised if cancelled else None)
        if cancelled:
            if anyio.current_effective_deadline() == -inf:
                raise raised
            # Nobody but the handler wanted it: some cancel their own task.
            task = asyncio.current_task()
            while task is not None and task.cancelling():
                task.uncancel()
        return raised

    def cut_off(self, cancellation: BaseException | None = None) -> BaseException:
        """Why the call was cancelled. *cancellation* is raised if it was not this one's."""
        late = self.deadline.is_late
        if not self.deadline.leave(cancellation) and cancellation is not None:
            raise cancellation
        if late:
            return HandlerTimeout(f"the handler took longer than {self._timeout} s")
        return Interrupted(has_begun=True)

    def _in_thread(self, arguments: tuple[Any, ...]) -> tuple[Any, BaseException | None]:
        """What the handler returned, or raised. Not raised here: a GeneratorExit that comes out of
        a thread closes the coroutines that wait for it, instead of being caught by them."""
        session: HandlerSession | None = arguments[1] if len(arguments) > 1 else None
        if session is not None and not session.enter():
            return None, None
        try:
            value = self._handler(*arguments)
            if session is not None:
                session.flush()
        except BaseException as error:  # noqa: BLE001 - as above
            return None, error
        else:
            return value, None
        finally:
            if session is not None:
                session.leave()

    def check_value(self, value: object) -> BaseException | None:
        if inspect.isawaitable(value):
            if inspect.iscoroutine(value):
                value.close()
            return OutboxError(
                "the handler returned an awaitable that nobody awaits: declare it async def"
            )
        if not self._told_of_value:
            self._told_of_value = True
            self._observers.tell(HandlerReturned(self._listener.name, type(value).__name__))
        return None

    def _ignored(self, seconds: float) -> None:
        first = self.argument[0] if self._call.batch else self.argument
        self._observers.tell(HandlerIgnoredCancel(self._listener.name, first.position, seconds))
        self._stuck()
