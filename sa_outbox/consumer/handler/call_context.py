"""The context of a handler's call: a copy of its own, with its event for the lines that it logs.

What a handler binds for its log lines, or sets in any other context variable, ends with its call:
the next event, perhaps another tenant's, never sees it.

The event is what structlog's ``merge_contextvars`` adds to the lines. It is bound for each event,
so that has to be cheap: only what differs from the event before is set, columns are taken as they
come, and of the headers only three are decoded, when their text is another one. In a program that
has not loaded structlog, nothing is bound.
"""

from __future__ import annotations

import sys
from contextvars import copy_context
from types import coroutine
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from sa_outbox.event.origin import HEADERS as FROM_HEADERS
from sa_outbox.event.origin import identifiers
from sa_outbox.event.row import EVENT_ID, EVENT_TYPE, HEADERS, ID, TENANT
from sa_outbox.observe import DeliveryStarted

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Sequence
    from contextvars import Context, ContextVar

    from sa_outbox.declare.listener import Listener
    from sa_outbox.observe import Observers

    from .delivery import InFlight

T = TypeVar("T")

NAMES: Final = ("listener", "event_id", "event_type", "attempt", "tenant", *FROM_HEADERS)
NOT_BOUND: Final = ...
"""What structlog takes for that. Set and not only left out: otherwise a value that was bound where
the consumer was started would be shown as the event's."""


@coroutine
def isolated(made: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
    """Await *made* in a copy of the current context. As a task of its own would, but without one:
    whoever cancels the handler cancels the task that it is called in."""
    context = copy_context()
    try:
        waits_for = context.run(made.send, None)
    except StopIteration as end:
        return cast("T", end.value)
    while True:
        try:
            try:
                answer = yield waits_for
            except BaseException as error:  # noqa: BLE001 - a cancellation, for the handler
                waits_for = context.run(made.throw, error)
            else:
                waits_for = context.run(made.send, answer)
        except StopIteration as end:
            return cast("T", end.value)


def has_changed(since: Context) -> bool:
    """Whether something was set in the current context after it was copied. Values that were
    replaced are compared as their classes do it, and some refuse: an array of NumPy has no truth.
    """
    try:
        return copy_context() != since
    except Exception:  # noqa: BLE001 - of the program's own classes
        return True


class Prelude:
    """Before the calls of one task: log lines get their event, and starts are reported."""

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
        if not self.reports_starts:
            return show

        def show_and_report(item: InFlight) -> None:
            if show is not None:
                show(item)
            self._report(item)

        return show_and_report

    @property
    def reports_starts(self) -> bool:
        observers = self._observers
        return observers.want_starts_of_queues if self._is_queue else observers.want_starts

    def play(self, items: Sequence[InFlight]) -> None:
        """For one call, with one event or a batch, in a new context."""
        if self._log_context.begin():
            self._log_context.show_all(items)
        if self.reports_starts:
            for item in items:
                self._report(item)

    def _report(self, item: InFlight) -> None:
        row = item.row
        identity = (self._name, row[EVENT_ID], row[EVENT_TYPE], row[ID], item.attempts + 1)
        started = DeliveryStarted(*identity, self._owner, self._is_queue, item.origin)
        self._observers.emit(started)


def log_variables() -> tuple[ContextVar[Any], ...] | None:
    """structlog's context variables of ``NAMES``; None if nothing has imported it."""
    structlog = sys.modules.get("structlog.contextvars")
    if structlog is None:
        return None
    # Its own variables: with others of the same names, what a handler binds itself might not win.
    tokens = copy_context().run(structlog.bind_contextvars, **dict.fromkeys(NAMES))
    return tuple(tokens[name].var for name in NAMES)


class LogContext:
    """What is bound for the handlers that one task calls. Nothing is unbound here: ``begin`` and
    all that follows is done in a context that is thrown away, see ``isolated``."""

    def __init__(self, listener: str) -> None:
        self._listener = listener
        self._variables: tuple[ContextVar[Any], ...] | None = None

    def begin(self) -> bool:
        """Bind what is the same for all events, in a new context. False: nobody uses structlog."""
        if self._variables is None:
            self._variables = log_variables()
            if self._variables is None:
                return False
            _, self._event_id, self._event_type, self._attempt, self._tenant = self._variables[:5]
            self._request_id, self._correlation_id, self._project_id = self._variables[5:]
        for each in self._variables:
            each.set(NOT_BOUND)
        self._variables[0].set(self._listener)
        self._last_attempts = -1
        self._last_type = ""
        self._last_tenant: str | None = None
        self._last_headers = "{}"
        self._last_found = "", "", ""
        return True

    def show(self, item: InFlight) -> None:
        """Bind what is known of *item*'s event."""
        row = item.row
        attempts, event_type = item.attempts, row[EVENT_TYPE]
        tenant, headers = row[TENANT], row[HEADERS]
        self._event_id.set(str(row[EVENT_ID]))
        if event_type != self._last_type:
            self._last_type = event_type
            self._event_type.set(event_type)
        if attempts != self._last_attempts:
            self._last_attempts = attempts
            self._attempt.set(attempts + 1)
        if tenant != self._last_tenant:
            self._last_tenant = tenant
            self._tenant.set(NOT_BOUND if tenant is None else tenant)
        if headers != self._last_headers:
            self._show_headers(headers)

    def show_all(self, items: Sequence[InFlight]) -> None:
        """Bind what all events of a batch share."""
        if len(items) == 1:
            self.show(items[0])
            return
        rows = [item.row for item in items]
        self._event_type.set(_shared({row[EVENT_TYPE] for row in rows}))
        self._attempt.set(_shared({item.attempts + 1 for item in items}))
        self._tenant.set(_shared({row[TENANT] for row in rows}))
        requests, correlations, projects = zip(
            *map(identifiers, {row[HEADERS] for row in rows}), strict=True
        )
        self._request_id.set(_shared({*requests}))
        self._correlation_id.set(_shared({*correlations}))
        self._project_id.set(_shared({*projects}))

    def _show_headers(self, headers: str) -> None:
        request, correlation, project = found = identifiers(headers)
        last_request, last_correlation, last_project = self._last_found
        self._last_headers, self._last_found = headers, found
        if request != last_request:
            self._request_id.set(request or NOT_BOUND)
        if correlation != last_correlation:
            self._correlation_id.set(correlation or NOT_BOUND)
        if project != last_project:
            self._project_id.set(project or NOT_BOUND)


def _shared(values: set[Any]) -> Any:
    """The one value that all of them have."""
    return (values.pop() if len(values) == 1 else None) or NOT_BOUND
