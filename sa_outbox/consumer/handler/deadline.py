"""The time limit of a handler call, and what cancels it."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING

from anyio import CancelScope

if TYPE_CHECKING:
    from collections.abc import Callable

STUCK_AFTER_SECONDS = 5.0
"""Seconds a handler may take to end after it was cancelled."""


class Interrupted(Exception):
    """Somebody cancelled the event, and the handler was cancelled, or not called at all."""

    def __init__(self, *, has_begun: bool) -> None:
        super().__init__("cancelled by request")
        self.has_begun = has_begun


class Deadline:
    """The time limit of consecutive calls, with one scope and one timer for many calls.

    One of each per call would cost more than a quick handler. When the timer fires, it checks how
    long the current call has run, and cancels it or waits for the rest.

    Invariant: the scope is cancelled only during a call, and left when that call has ended. Between
    two calls, the handler task is unaffected.
    """

    def __init__(self, seconds: float | None, on_stuck: Callable[[float], None]) -> None:
        self._seconds = seconds
        self._on_stuck = on_stuck
        self._scope: CancelScope | None = None
        self.is_calling: bool = False
        """Between ``begin`` and the end of the call, when the caller resets it."""
        self._started = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self.is_late: bool = False
        """The time limit was exceeded."""
        self.is_over: bool = False
        """The call was cancelled, whether or not it reacted."""

    def begin(self, now: float) -> None:
        """A call begins: *now*, or a moment ago."""
        if self._scope is None:
            self._scope = CancelScope()
            self._scope.__enter__()
        self.is_calling = True
        self._started = now
        if self._timer is None and self._seconds is not None:
            self._set_timer(self._seconds)

    def goes_on(self, now: float) -> None:
        """In a thread: the next of several calls begins. The timer notices when it fires."""
        self._started = now

    def is_exceeded(self, now: float) -> bool:
        """In a thread: whether the time of the call is up, noticed by the loop or not."""
        return self._seconds is not None and now - self._started >= self._seconds

    def interrupt(self) -> None:
        """Cancel the call, if there is one. Its time limit still applies."""
        if self.is_calling and self._scope is not None:
            self.is_over = True
            self._scope.cancel()

    def leave(self, error: BaseException | None = None) -> bool:
        """Leave the scope; the next call has a new one. True if *error* was its cancellation."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.is_late = self.is_over = False
        scope, self._scope = self._scope, None
        if scope is None:
            return False
        return bool(scope.__exit__(None if error is None else type(error), error, None))

    def _set_timer(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._fire)

    def _fire(self) -> None:
        self._timer = None
        scope, seconds = self._scope, self._seconds
        if not self.is_calling or scope is None or seconds is None:
            return
        taken = monotonic() - self._started
        if self.is_late:
            self._on_stuck(taken)
        elif taken >= seconds:
            self.is_late = self.is_over = True
            scope.cancel()
            self._set_timer(STUCK_AFTER_SECONDS)
        else:
            self._set_timer(seconds - taken)
