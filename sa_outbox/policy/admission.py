"""Which events an outbox takes: those that keep its contract, and that its check lets pass."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..event.event import Event
    from .contract import Contract


class Admission:
    def __init__(
        self, contract: Contract | None, check: Callable[[Event[Any]], None] | None
    ) -> None:
        self._contract = contract
        self._check = check

    def admit(self, event: Event[Any], *, is_deferred: bool) -> None:
        """Raise if *event* is not taken. *is_deferred*: it has values that only the flush makes
        known; then ``check`` is called by the flush."""
        if self._contract is not None:
            self._contract.check(event)
        if not is_deferred:
            self.check(event)

    def check(self, event: Event[Any]) -> None:
        """Raise if *event*, of which everything is known, is refused."""
        if self._check is None:
            return
        answer: object = self._check(event)
        if answer is not None:
            if inspect.iscoroutine(answer):
                answer.close()
            raise ConfigError(
                f"check_event returned {type(answer).__name__} for {event.event_type!r}: it has to "
                "return None, or raise what refuses the event. Nothing was written"
            )
