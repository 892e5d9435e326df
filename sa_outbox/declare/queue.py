"""Declaring queues: what ``outbox.queue(...)`` returns, and its decorators."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError
from ..event.type_patterns import NOT, excluded, may_meet, wanted
from .declaration import check_name, declare

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .declaration import H, Listeners
    from .handler import Handler
    from .listener import Listener


class QueueDeclaration:
    """A queue to which handlers are added, each with the event types it gets.

    ::

        exports = outbox.queue("exports", concurrency=4)

        @exports.on("export.requested")
        async def make(event: Event) -> None: ...

        @exports.on("export.cancelled")
        async def clean_up(event: Event, session: AsyncSession) -> None: ...

    All of them share the queue's cursor, options and concurrency. The queue gets the event types of
    its handlers and no others. Of several that match, the exact name wins, then the longest
    pattern.
    """

    def __init__(self, name: str, options: dict[str, Any], listeners: Listeners) -> None:
        check_name(name)
        self.name = name
        self._options = {**options, "order": "none"}
        self._listeners = listeners
        self._handlers: list[Listener] = []

    def on(self, *types: str | type) -> Callable[[H], H]:
        """Decorator: this function handles these event *types*. They may be left out when the
        argument is annotated as ``Event[ExportRequested]``."""

        def decorate(handler: H) -> H:
            self._add(handler, types or None)
            return handler

        return decorate

    def __call__(self, handler: H) -> H:
        """Decorator: this function handles every event whose category names this queue."""
        settings = self._listeners.settings
        types = () if settings is None else settings.category_by_type.types_of(self.name)
        if not types:
            raise ConfigError(
                f"no category has the queue {self.name!r}, so it would get no events. Name its "
                f'event types: @outbox.queue({self.name!r}).on("order.placed"); or map event '
                f'types to the queue: Outbox(categories={{"order.*": Category("orders", '
                f"queue={self.name!r})}})"
            )
        self._add(handler, types)
        return handler

    def _add(self, handler: Handler, types: tuple[str | type, ...] | None) -> None:
        declared = declare(self.name, types, handler, self._options, self._listeners.settings)
        if not self._handlers:
            self._listeners.add(declared)
        else:
            self._listeners.replace(together([*self._handlers, declared]))
        self._handlers.append(declared)


def together(handlers: Sequence[Listener]) -> Listener:
    """One listener to all their event types. Raises :class:`ConfigError` if two want the same."""
    name, on = handlers[0].name, [one for each in handlers for one in wanted(each.on)]
    for one in on:
        if on.count(one) > 1:
            raise ConfigError(f"queue {name!r} has a handler for {one!r} already")
    # What one excludes and another takes is wanted; what another takes a part of can't be said.
    others = {one for each in handlers for one in excluded(each.on) if one not in on}
    for each in handlers:
        for other in sorted(others.difference(excluded(each.on))):
            for one in wanted(each.on):
                if may_meet(one, other):
                    raise ConfigError(
                        f"queue {name!r}: one handler excludes {other!r}, and another takes "
                        f"{one!r}, which may be the same events. Name the event types of each"
                    )
    types = (*on, *(NOT + other for other in sorted(others)))
    return replace(handlers[0], on=types, members=tuple(handlers))
