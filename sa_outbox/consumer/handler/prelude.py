"""What comes before a handler is called: its log lines get a context, and its start is reported."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sa_outbox.event.origin import Origin
from sa_outbox.event.row import EVENT_ID, EVENT_TYPE, HEADERS, ID, TENANT
from sa_outbox.observe import DeliveryStarted

from .log_context import LogContext

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sa_outbox.declare.listener import Listener
    from sa_outbox.observe import Observers

    from .delivery import InFlight


class Prelude:
    """For the calls of one task."""

    def __init__(self, listener: Listener, observers: Observers, owner: str) -> None:
        self._name = listener.name
        self._is_queue = listener.order_mode.is_queue
        self._observers = observers
        self._owner = owner
        self._log_context = LogContext(listener.name)

    def begin(self) -> Callable[[InFlight], None] | None:
        """What to call before the handler of each event that follows, in a new context; None if
        nothing is to be done. Asked once for many events: what nobody wants costs them nothing."""
        show = self._log_context.show if self._log_context.begin() else None
        if not self._observers.want_starts(queue=self._is_queue):
            return show

        def show_and_report(item: InFlight) -> None:
            if show is not None:
                show(item)
            self._report(item)

        return show_and_report

    def play(self, items: Sequence[InFlight]) -> None:
        """For one call, with one event or a batch, in a new context."""
        if self._log_context.begin():
            self._log_context.show_all(items)
        if self._observers.want_starts(queue=self._is_queue):
            for item in items:
                self._report(item)

    def _report(self, item: InFlight) -> None:
        row = item.row
        identity = (self._name, row[EVENT_ID], row[EVENT_TYPE], row[ID], item.attempts + 1)
        origin = Origin(row[TENANT], row[HEADERS])
        self._observers.emit(DeliveryStarted(*identity, self._owner, self._is_queue, origin))
