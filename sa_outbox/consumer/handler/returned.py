"""What a handler returns: nothing, as a rule."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from sa_outbox.errors import OutboxError
from sa_outbox.observe import HandlerReturned

if TYPE_CHECKING:
    from sa_outbox.observe import Observers


class ReturnedValues:
    """The values that one listener's handler returns."""

    def __init__(self, listener: str, observers: Observers) -> None:
        self._listener = listener
        self._observers = observers
        self._is_reported = False

    def judge(self, value: object) -> BaseException | None:
        """An error for an awaitable; anything else is ignored, and reported once."""
        if inspect.isawaitable(value):
            if inspect.iscoroutine(value):
                value.close()
            return OutboxError(
                "the handler returned an awaitable that nobody awaits: declare it async def"
            )
        if not self._is_reported:
            self._is_reported = True
            self._observers.emit(HandlerReturned(self._listener, type(value).__name__))
        return None
