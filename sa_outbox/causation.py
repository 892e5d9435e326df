"""Which event is being handled: events that its handler adds are linked to it."""

from __future__ import annotations

from contextvars import ContextVar
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from .arguments import is_header_text
from .errors import CausationTooDeep

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .event import Event

DEPTH = "causation_depth"
CARRIED: Final = ("project_id", "actor_type", "actor_id", "request_id", "correlation_id")
"""Headers that events pass on to those which their handlers add; the tenant is a column."""


class HandledBatch:
    """The events of a batch whose handler runs: which of them caused what is not known.

    Looked at only when the handler adds an event. A copy, for a handler may change its list.
    """

    def __init__(self, events: Sequence[Event[Any]]) -> None:
        self._events = tuple(events)

    @cached_property
    def depth(self) -> int:
        """Of the deepest of them: a loop must end all the same."""
        return max(map(depth_of, self._events), default=0)

    @cached_property
    def tenants(self) -> frozenset[str | None]:
        return frozenset(each.tenant for each in self._events)

    @cached_property
    def carried(self) -> dict[str, str]:
        """What all of them have, and have alike."""
        common: set[tuple[str, str]] | None = None
        for each in self._events:
            found = set(_carried_by(each).items())
            common = found if common is None else common & found
        return dict(common or ())


Cause: TypeAlias = "Event[Any] | HandledBatch"

handled: ContextVar[Event[Any] | None] = ContextVar("sa_outbox_handled", default=None)
"""The event whose handler runs in this context; None outside of handlers and in batch handlers."""

handled_batch: ContextVar[HandledBatch | None] = ContextVar("sa_outbox_handled_batch", default=None)
"""In a batch handler, its events."""


def present_cause() -> Cause | None:
    """What is being handled in this context."""
    cause = handled.get()
    return handled_batch.get() if cause is None else cause


def carried(cause: Cause) -> dict[str, str]:
    """The tenant and the headers of ``CARRIED`` that events added in its handler get."""
    return cause.carried if isinstance(cause, HandledBatch) else _carried_by(cause)


def tenants(cause: Cause) -> frozenset[str | None]:
    return cause.tenants if isinstance(cause, HandledBatch) else frozenset((cause.tenant,))


def depth_of(event: Event[Any]) -> int:
    depth = event.headers.get(DEPTH, 0)
    return depth if isinstance(depth, int) else 0


def link_to_cause(event_type: str, headers: dict[str, str | int], limit: int) -> None:
    """Add to a new event's *headers* what links it to the one that is being handled, if one is.

    A correlation or causation that the caller gave stays. The depth is ours: it ends a chain of
    handlers that cause each other for ever.
    """
    cause = present_cause()
    if cause is None:
        return
    depth = 1 + (cause.depth if isinstance(cause, HandledBatch) else depth_of(cause))
    if depth > limit:
        raise CausationTooDeep(event_type, limit)
    headers[DEPTH] = depth
    if isinstance(cause, HandledBatch):
        return
    known = cause.headers
    headers.setdefault("correlation_id", known.get("correlation_id", str(cause.event_id)))
    headers.setdefault("causation_id", str(cause.event_id))


def _carried_by(event: Event[Any]) -> dict[str, str]:
    found = {} if event.tenant is None else {"tenant": event.tenant}
    known = event.headers
    for name in CARRIED:
        value = known.get(name)
        # Others than our producers write to the log too, and a relay must not be tricked.
        if isinstance(value, str) and is_header_text(value):
            found[name] = value
    return found
