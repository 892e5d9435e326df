"""Calling a handler: its arguments, its time limit, whatever it raises."""

from __future__ import annotations

import asyncio
import inspect
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any

import anyio
from anyio import CancelScope

from sa_outbox.causation import HandledBatch, handled, handled_batch
from sa_outbox.errors import HandlerTimeout, OutboxError
from sa_outbox.observe import HandlerIgnoredCancel, HandlerReturned

from .item import load_event

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextvars import Token

    from sa_outbox.event import Event
    from sa_outbox.listener import Listener
    from sa_outbox.observe import Observers

    from .item import Item
    from .session import HandlerSession

UNTIL_STUCK = 5.0
"""Seconds a handler may take to end after it was cancelled."""


class Deadline:
    """The time limit of one call after the other, with one scope and one timer for many calls.

    One of each for every call would cost more than a quick handler. When the timer fires it looks
    how long the present call has run, cancels it or waits for the rest.

    Invariant: the scope is cancelled only during a call, and left when that call has ended. What
    the hand does between two calls is as if there were none.
    """

    def __init__(self, seconds: float | None, on_stuck: Callable[[float], None]) -> None:
        self._seconds = seconds
        self._on_stuck = on_stuck
        self._scope: CancelScope | None = None
        self._calling = False
        self._started = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        if self._scope is None:
            self._scope = CancelScope()
            self._scope.__enter__()
        self._calling = True
        self._started = monotonic()
        if self._timer is None and self._seconds is not None:
            self._set_timer(self._seconds)

    def end(self) -> float:
        """The call has ended; how long it took."""
        self._calling = False
        return monotonic() - self._started

    @property
    def is_over(self) -> bool:
        """The time limit was exceeded: the call was cancelled, whether it minded or not."""
        return self._scope is not None and self._scope.cancel_called

    def leave(self, error: BaseException | None = None) -> bool:
        """Leave the scope; the next call has a new one. True if *error* was its cancellation."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        scope, self._scope = self._scope, None
        if scope is None:
            return False
        return bool(scope.__exit__(None if error is None else type(error), error, None))

    def _set_timer(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._fire)

    def _fire(self) -> None:
        self._timer = None
        scope, seconds = self._scope, self._seconds
        if not self._calling or scope is None or seconds is None:
            return
        taken = monotonic() - self._started
        if scope.cancel_called:
            self._on_stuck(taken)
        elif taken >= seconds:
            scope.cancel()
            self._set_timer(UNTIL_STUCK)
        else:
            self._set_timer(seconds - taken)


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
        self._deadline.leave()

    def load(self, item: Item) -> Event[Any]:
        return load_event(item.row, self._call.payload_class)

    async def __call__(
        self, items: Sequence[Item], argument: Any, session: Any = None
    ) -> BaseException | None:
        """Call the handler with *argument* (an event or a list) and say what it raised.

        Raises only when the consumer itself is being cancelled.
        """
        self._position = items[0].position
        cause: Token[Any] | None = None
        batch: Token[Any] | None = None
        if self._call.batch:
            batch = handled_batch.set(HandledBatch(argument))
        else:
            cause = handled.set(argument)
        self._deadline.begin()
        try:
            error = await self._run(argument, session)
        except BaseException as raised:  # noqa: BLE001 - GeneratorExit and the like are failures too
            return self._judge(raised)
        finally:
            seconds = self._deadline.end()
            for item in items:
                item.seconds = seconds
            if cause is not None:
                handled.reset(cause)
            if batch is not None:
                handled_batch.reset(batch)
        if self._deadline.is_over:  # and yet it ended as if nothing had happened
            self._deadline.leave()
            return self._too_long()
        return error

    async def plainly(self, item: Item, event: Event[Any]) -> BaseException | None:
        """The same for one event and an async handler without a session: for most there is."""
        self._position = item.position
        deadline = self._deadline
        cause = handled.set(event)
        deadline.begin()
        try:
            value = await self._handler(event)
        except BaseException as raised:  # noqa: BLE001 - as above
            return self._judge(raised)
        finally:
            item.seconds = deadline.end()
            handled.reset(cause)
        if deadline.is_over:
            deadline.leave()
            return self._too_long()
        return None if value is None else self._check_value(value)

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
        error = None if value is None else self._check_value(value)
        if session is not None and error is None and self._call.is_async:
            await session.flush()
        return error

    def _judge(self, raised: BaseException) -> BaseException:
        """The handler's failure; *raised* again if the consumer itself is being cancelled."""
        cancelled = isinstance(raised, asyncio.CancelledError)
        if self._deadline.is_over:
            if not self._deadline.leave(raised if cancelled else None) and cancelled:
                raise raised
            return self._too_long()
        if cancelled:
            if anyio.current_effective_deadline() == -inf:
                raise raised
            # Nobody but the handler wanted it: some cancel their own task.
            task = asyncio.current_task()
            while task is not None and task.cancelling():
                task.uncancel()
        return raised

    def _too_long(self) -> HandlerTimeout:
        return HandlerTimeout(f"the handler took longer than {self._timeout} s")

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
