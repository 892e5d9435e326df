"""Calling a handler: its arguments, its time limit, whatever it raises."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any

import anyio
from anyio import CancelScope

from sa_outbox.causation import handled
from sa_outbox.errors import HandlerTimeout, OutboxError
from sa_outbox.observe import HandlerIgnoredCancel, HandlerReturned

from .item import load_event

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sa_outbox.event import Event
    from sa_outbox.listener import Listener
    from sa_outbox.observe import Observers

    from .item import Item
    from .session import HandlerSession

UNTIL_STUCK = 5.0
"""Seconds a handler may take to end after it was cancelled."""


class Deadline:
    """The time limit of one call after the other, with one timer for many calls.

    A timer for each would cost more than a quick handler. When it fires it looks how long the
    present call has run, cancels it or waits for the rest.
    """

    def __init__(self, seconds: float | None, on_stuck: Callable[[float], None]) -> None:
        self._seconds = seconds
        self._on_stuck = on_stuck
        self._scope: CancelScope | None = None
        self._started = 0.0
        self._fired = False
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, scope: CancelScope) -> None:
        self._scope = scope
        loop = asyncio.get_running_loop()
        self._started = loop.time()
        if self._timer is None and self._seconds is not None:
            self._timer = loop.call_at(self._started + self._seconds, self._fire, loop)

    def end(self) -> float:
        """The call has ended; how long it took."""
        self._scope = None
        if self._fired:  # the timer looks whether that call ends; the next one needs it
            self._fired = False
            self.close()
        return asyncio.get_running_loop().time() - self._started

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fire(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        scope, seconds = self._scope, self._seconds
        if scope is None or seconds is None:
            return
        due = self._started + seconds
        if scope.cancel_called:
            self._on_stuck(loop.time() - self._started)
        elif due <= loop.time():
            scope.cancel()
            self._fired = True
            self._timer = loop.call_later(UNTIL_STUCK, self._fire, loop)
        else:
            self._timer = loop.call_at(due, self._fire, loop)


class Dispatch:
    """Calls one listener's handler, for one hand: one call at a time."""

    def __init__(
        self,
        listener: Listener,
        threads: anyio.CapacityLimiter,
        observers: Observers,
        on_stuck: Callable[[], None],
    ) -> None:
        self._listener = listener
        self._handler = listener.handler
        self._call = listener.call
        self._threads = threads
        self._observers = observers
        self._stuck = on_stuck
        self._position = 0
        timeout = listener.timeout
        self._timeout = None if timeout is None else timeout.total_seconds()
        self._deadline = Deadline(self._timeout, self._ignored)
        self._told_of_value = False

    def close(self) -> None:
        self._deadline.close()

    def load(self, item: Item) -> Event[Any]:
        return load_event(item.row, self._call.payload_class)

    async def __call__(
        self, items: Sequence[Item], argument: Any, session: Any = None
    ) -> BaseException | None:
        """Call the handler with *argument* (an event or a list) and say what it raised.

        Raises only when the consumer itself is being cancelled.
        """
        self._position = items[0].position
        arguments = (argument,) if self._call.session == "none" else (argument, session)
        token = None if self._call.batch else handled.set(argument)
        error: BaseException | None = None
        scope = CancelScope()
        try:
            with scope:
                self._deadline.begin(scope)
                error = await self._run(arguments, scope)
                if session is not None and error is None and self._call.is_async:
                    error = await _caught(session.flush(), scope)
        finally:
            seconds = self._deadline.end()
            for item in items:
                item.seconds = seconds
            if token is not None:
                handled.reset(token)
        if scope.cancel_called:
            return HandlerTimeout(f"the handler took longer than {self._timeout} s")
        return error

    async def _run(self, arguments: tuple[Any, ...], scope: CancelScope) -> BaseException | None:
        try:
            if self._call.is_async:
                value = await self._handler(*arguments)
            else:
                # Abandoned when its time is over: a thread can't be stopped. What it does through
                # its session is never committed.
                value = await anyio.to_thread.run_sync(
                    self._in_thread, arguments, limiter=self._threads, abandon_on_cancel=True
                )
        except BaseException as error:  # noqa: BLE001 - GeneratorExit and the like are failures too
            return _told(error, scope)
        if value is not None:
            return self._check_value(value)
        return None

    def _in_thread(self, arguments: tuple[Any, ...]) -> Any:
        if len(arguments) == 1:
            return self._handler(*arguments)
        session: HandlerSession = arguments[1]
        if not session.enter():
            return None
        try:
            value = self._handler(*arguments)
            session.flush()
            return value
        finally:
            session.leave()

    def _check_value(self, value: object) -> BaseException | None:
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
        self._observers.tell(HandlerIgnoredCancel(self._listener.name, self._position, seconds))
        self._stuck()


async def _caught(work: Any, scope: CancelScope) -> BaseException | None:
    try:
        await work
    except BaseException as error:  # noqa: BLE001 - as above
        return _told(error, scope)
    return None


def _told(error: BaseException, scope: CancelScope) -> BaseException:
    """The error as the handler's failure; raised instead if it is our own cancellation."""
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        if scope.cancel_called or (task is not None and task.cancelling()):
            raise error
    if isinstance(error, KeyboardInterrupt):
        raise error
    return error
