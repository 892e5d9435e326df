"""What a handler returns: nothing, as a rule."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sa_outbox.errors import OutboxError
from sa_outbox.observe import HandlerReturned

if TYPE_CHECKING:
    from sa_outbox.observe import Observers


@dataclass(slots=True)
class ReturnedValues:
    """The values that one listener's handler returns."""

    listener: str
    observers: Observers
    is_reported: bool = False

    def judge(self, value: object) -> BaseException | None:
        """An error for an awaitable; anything else is ignored, and reported once."""
        if inspect.isawaitable(value):
            if inspect.iscoroutine(value):
                value.close()
            return OutboxError(
                "the handler returned an awaitable that nobody awaits: declare it async def"
            )
        if not self.is_reported:
            self.is_reported = True
            self.observers.emit(HandlerReturned(self.listener, type(value).__name__))
        return None
