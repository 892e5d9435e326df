"""The event types of a catalogue, as its page lists them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sa_outbox.catalog.alternatives import alternatives, phrase, resolved
from sa_outbox.catalog.committed import Committed
from sa_outbox.catalog.dialect import component_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sa_outbox.catalog.committed import CommittedType
    from sa_outbox.catalog.dialect import Schema


@dataclass(frozen=True, slots=True)
class Field:
    path: str
    type: str
    is_optional: bool
    description: str


@dataclass(frozen=True, slots=True)
class Reader:
    """A listener or a relay that gets the events."""

    name: str
    payload_class: str | None
    """What the payload becomes for it; None: it stays JSON."""
    address: str | None
    """Of a relay: where it sends them, if that is known."""


class Catalogue:
    """Raises :class:`ConfigError` for a document that is not a catalogue."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._read = Committed(document)

    @property
    def types(self) -> list[tuple[str, CommittedType]]:
        return sorted(self._read.types.items())

    def type_of(self, name: str) -> CommittedType | None:
        return self._read.types.get(name)

    def listeners(self, event_type: str) -> list[Reader]:
        return [
            Reader(name, each.classes.get(event_type), None)
            for name, each in sorted(self._read.listeners.items())
            if each.wants(event_type)
        ]

    def relays(self, event_type: str) -> list[Reader]:
        addresses = {name: each.get("address") for name, each in self._read.channels.items()}
        return [
            Reader(name, each.classes.get(event_type), addresses.get(name))
            for name, each in sorted(self._read.relays.items())
            if each.wants(event_type)
        ]

    def root(self, event_type: str) -> Schema:
        return resolved(self._read.schemas.get(component_name(event_type)), self._read.schemas)

    def fields(self, event_type: str) -> list[Field]:
        """Those of the payload, and of what is in it, by path."""
        return list(self._fields(self.root(event_type), "", ()))

    def _fields(self, schema: Any, path: str, within: tuple[int, ...]) -> Iterator[Field]:
        for each in alternatives(schema, self._read.schemas):
            if id(each) in within:  # a type within itself
                continue
            deeper = (*within, id(each))
            for name, field in each.get("properties", {}).items():
                inside = f"{path}.{name}" if path else name
                yield Field(
                    inside,
                    phrase(field, self._read.schemas),
                    name not in each.get("required", ()),
                    field.get("description", ""),
                )
                yield from self._fields(field, inside, deeper)
            for where, shown in (("items", "[]"), ("additionalProperties", ".*")):
                if isinstance(each.get(where), dict):
                    yield from self._fields(each[where], path + shown, deeper)
