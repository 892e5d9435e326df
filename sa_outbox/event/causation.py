"""Which event is being handled: events that its handler adds are linked to it.

Two limits stop handlers that cause events endlessly. The depth limit stops a chain of events that
cause one another. The size limit stops a tree: two events for each event make a million after
twenty steps, long before a chain reaches a hundred. An added event belongs to the tree of the first
event, and carries that tree's current size.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from contextvars import ContextVar
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ..errors import CausationTooDeep, CausationTooWide
from .validation import is_header_text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from .event import Event

DEPTH = "causation_depth"
TREE = "causation_tree"
"""Which tree an event belongs to, and its size at that moment: ``"9f86d081884c:17"``."""
MAX_TREES = 10_000
"""How many trees are counted at a time. A tree that keeps growing is never the one forgotten."""
_TREE = re.compile(r"([0-9a-f]{12}):([0-9]{1,15})")
CARRIED: Final = ("project_id", "actor_type", "actor_id", "request_id", "correlation_id")
"""Headers that events pass on to the events their handlers add; the tenant is a column."""


class HandledBatch:
    """The events of a batch whose handler is running: which of them caused what is unknown.

    Examined only when the handler adds an event. A copy, because a handler may change its list.
    """

    def __init__(self, events: Sequence[Event[Any]]) -> None:
        self._events = tuple(events)

    @cached_property
    def depth(self) -> int:
        """Depth of the deepest event: a loop must still end."""
        return max(map(depth_of, self._events), default=0)

    @cached_property
    def tree(self) -> tuple[str, int]:
        """Tree of the deepest event: a loop must still end."""
        deepest = max(self._events, key=depth_of, default=None)
        return ("0" * 12, 0) if deepest is None else tree_of(deepest)

    @cached_property
    def tenants(self) -> frozenset[str | None]:
        return frozenset(each.tenant for each in self._events)

    @cached_property
    def carried(self) -> dict[str, str]:
        """The headers that all of them share with equal values."""
        common: set[tuple[str, str]] | None = None
        for each in self._events:
            found = set(_carried_by(each).items())
            common = found if common is None else common & found
        return dict(common or ())


Cause: TypeAlias = "Event[Any] | HandledBatch"

handled: ContextVar[Cause | None] = ContextVar("sa_outbox_handled", default=None)
"""The event or batch whose handler runs in this context; None outside handlers."""


def carried(cause: Cause) -> dict[str, str]:
    """The tenant, and those headers of ``CARRIED``, that events added by its handler get."""
    return cause.carried if isinstance(cause, HandledBatch) else _carried_by(cause)


def tenants(cause: Cause) -> frozenset[str | None]:
    return cause.tenants if isinstance(cause, HandledBatch) else frozenset((cause.tenant,))


def depth_of(event: Event[Any]) -> int:
    depth = event.headers.get(DEPTH, 0)
    return depth if isinstance(depth, int) else 0


def tree_of(event: Event[Any]) -> tuple[str, int]:
    """The name of its tree, and that tree's size when this event was added."""
    found = _TREE.fullmatch(str(event.headers.get(TREE, "")))
    return (found[1], int(found[2])) if found else (_own_tree(event.event_id), 0)


def tree_name(event_id: UUID, header: str | None) -> str:
    """The name of the tree of the event that has this id and this *header* ``TREE``."""
    found = _TREE.fullmatch(header or "")
    return found[1] if found else _own_tree(event_id)


def _own_tree(event_id: UUID) -> str:
    """Not the beginning of the id: that is a timestamp, which events of one moment share."""
    return event_id.hex[-12:]


class Trees:
    """How many events handlers have added to each tree, as far as this process knows.

    It learns the counts of other processes, and its own from before a restart, from the events that
    it handles. Failed attempts count too.
    """

    def __init__(self) -> None:
        self._sizes: OrderedDict[str, int] = OrderedDict()
        self._lock = Lock()  # handlers also run in threads

    def grow(self, tree: str, known: int, limit: int) -> int | None:
        """Count one more event; *known* is the count its cause carries. None if that exceeds
        *limit*."""
        with self._lock:
            size = max(self._sizes.pop(tree, 0), known)
            grown = size + 1 if size < limit else None
            self._sizes[tree] = size if grown is None else grown
            if len(self._sizes) > MAX_TREES:
                self._sizes.popitem(last=False)
        return grown


trees: Final = Trees()


def link_to_cause(event_type: str, headers: dict[str, str | int], deepest: int, most: int) -> None:
    """Link a new event to the one being handled, if any, by adding to its *headers*.

    A correlation or causation given by the caller is kept. Depth and tree are ours: they stop
    endless causation at *deepest* levels and *most* events.
    """
    cause = handled.get()
    if cause is None:
        return
    if isinstance(cause, HandledBatch):
        above, (tree, known) = cause.depth, cause.tree
    else:
        above, (tree, known) = depth_of(cause), tree_of(cause)
    if above >= deepest:
        raise CausationTooDeep(event_type, deepest)
    size = trees.grow(tree, known, most)
    if size is None:
        raise CausationTooWide(event_type, most)
    headers[DEPTH] = above + 1
    headers[TREE] = f"{tree}:{size}"
    if isinstance(cause, HandledBatch):
        return
    headers.setdefault("correlation_id", cause.headers.get("correlation_id", str(cause.event_id)))
    headers.setdefault("causation_id", str(cause.event_id))


def _carried_by(event: Event[Any]) -> dict[str, str]:
    found = {} if event.tenant is None else {"tenant": event.tenant}
    known = event.headers
    for name in CARRIED:
        value = known.get(name)
        # Not only our producers write to the log, and a relay must not be tricked by a header.
        if isinstance(value, str) and is_header_text(value):
            found[name] = value
    return found
