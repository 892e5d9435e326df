"""What a catalogue lists: the event types that a program knows, and who reads each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, get_origin

from ..event.type_patterns import wanted
from ..event.types import EventTypes, event_types
from ..relay.forward import Forward
from .dialect import closed, component_name, components_of
from .payload_schema import schemas_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..declare.listener import Listener
    from ..declare.recurring import Recurring
    from ..outbox import Outbox
    from .dialect import Schema


@dataclass(frozen=True)
class Entry:
    """An event type: registered with a class, or only a name that somebody listens to."""

    name: str
    version: int = 1
    payload_class: type | None = None
    upcasters: tuple[int, ...] = ()
    """The versions from which there is one."""

    @cached_property
    def reading(self) -> dict[str, Schema]:
        """The schema of payloads that this program accepts, as components."""
        return self._components(writing=False)

    @cached_property
    def writing(self) -> dict[str, Schema]:
        """The schema of payloads that this program stores, as components."""
        return self._components(writing=True)

    def _components(self, *, writing: bool) -> dict[str, Schema]:
        name = component_name(self.name)
        if self.payload_class is None:
            return {name: {"description": "Any JSON: no class is registered for this event type."}}
        found = schemas_of(self.name, self.payload_class)
        if not writing:
            return components_of(name, found.reading)
        return {part: closed(each) for part, each in components_of(name, found.writing).items()}


@dataclass(frozen=True)
class Contents:
    """What one outbox of a program declares, by name."""

    log: str
    entries: tuple[Entry, ...]
    listeners: tuple[Listener, ...]
    relays: tuple[tuple[Listener, Forward], ...]
    crons: tuple[Recurring, ...]

    def read_by(self, listener: Listener) -> list[Entry]:
        return [each for each in self.entries if listener.wants(each.name)]


def contents_of(outbox: Outbox, types: EventTypes = event_types) -> Contents:
    """What *outbox* declares, and every class that the process has registered."""
    listeners = sorted(outbox.listeners, key=lambda each: each.name)
    crons = sorted(outbox.crons, key=lambda each: each.name)
    names = {one for each in listeners for one in wanted(each.on) if "*" not in one}
    names |= {each.event_type for each in crons} | {each.name for each in types}
    schema, table = outbox.settings.names.schema, outbox.settings.names.table()
    return Contents(
        log=table if schema is None else f"{schema}.{table}",
        entries=tuple(_entry(name, types) for name in sorted(names)),
        listeners=tuple(each for each in listeners if _forward(each) is None),
        relays=tuple((each, found) for each in listeners if (found := _forward(each))),
        crons=tuple(crons),
    )


def class_read(listener: Listener, entry: Entry) -> type | None:
    """What *listener* makes of a payload; None: it stays JSON."""
    forward = _forward(listener)
    wish = _handler_of(listener, entry).call.payload if forward is None else forward.payload
    form = None if wish is None else wish.form_of(entry.payload_class)
    found = get_origin(form) or form
    return found if isinstance(found, type) else None


def classes_read(listener: Listener, entries: Iterable[Entry]) -> dict[str, str]:
    """The classes of those that do not stay JSON, by event type."""
    read = {each.name: class_read(listener, each) for each in entries}
    return {name: cls.__qualname__ for name, cls in read.items() if cls is not None}


def _handler_of(listener: Listener, entry: Entry) -> Listener:
    """Of a queue with several, the one that this event type is for."""
    place = listener.handler_of(entry.name)
    return listener if place is None else listener.members[place]


def _forward(listener: Listener) -> Forward | None:
    return listener.forwarding if isinstance(listener.forwarding, Forward) else None


def _entry(name: str, types: EventTypes) -> Entry:
    upcasters = tuple(types.upcasters_of(name))
    return Entry(name, types.version_of(name) or 1, types.class_of(name), upcasters)
