"""Which event is being handled: events that its handler adds are linked to it."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from .errors import CausationTooDeep

if TYPE_CHECKING:
    from .event import Event

handled: ContextVar[Event[Any] | None] = ContextVar("sa_outbox_handled", default=None)
"""The event whose handler runs in this context; None outside of handlers and in batch handlers."""

handled_depth: ContextVar[int] = ContextVar("sa_outbox_handled_depth", default=0)
"""In a batch handler, the depth of the deepest of its events: which one caused what is not known,
but a loop must end all the same."""

DEPTH = "causation_depth"


def depth_of(event: Event[Any]) -> int:
    depth = event.headers.get(DEPTH, 0)
    return depth if isinstance(depth, int) else 0


def link_to_cause(event_type: str, headers: dict[str, str | int], limit: int) -> None:
    """Add to a new event's *headers* what links it to the one that is being handled, if one is.

    A correlation or causation that the caller gave stays. The depth is ours: it ends a chain of
    handlers that cause each other for ever.
    """
    cause = handled.get()
    depth = handled_depth.get() if cause is None else depth_of(cause) + 1
    if not depth:
        return
    if depth > limit:
        raise CausationTooDeep(event_type, limit)
    headers[DEPTH] = depth
    if cause is None:
        return
    known = cause.headers
    headers.setdefault("correlation_id", known.get("correlation_id", str(cause.event_id)))
    headers.setdefault("causation_id", str(cause.event_id))
