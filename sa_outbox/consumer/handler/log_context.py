"""What structlog's ``merge_contextvars`` adds to the lines that a handler logs: its event.

Bound for each event, so it has to be cheap: only what differs from the event before is set, columns
are taken as they come, and of the headers only three are decoded, when their text is another one.
In a program that has not loaded structlog, nothing is bound.
"""

from __future__ import annotations

import sys
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Final

from sa_outbox.event.origin import HEADERS as FROM_HEADERS
from sa_outbox.event.origin import identifiers
from sa_outbox.event.row import EVENT_ID, EVENT_TYPE, HEADERS, TENANT

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextvars import ContextVar

    from .delivery import InFlight

NAMES: Final = ("listener", "event_id", "event_type", "attempt", "tenant", *FROM_HEADERS)
NOT_BOUND: Final = ...
"""What structlog takes for that. Set and not only left out: otherwise a value that was bound where
the consumer was started would be shown as the event's."""


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
    all that follows is done in a context that is thrown away, see ``isolation.py``."""

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
