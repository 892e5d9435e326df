"""A catalogue as it is read: from a file, or of the program as it is now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError
from ..event.type_patterns import matcher
from .relays import ABOUT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@dataclass(frozen=True, slots=True)
class CommittedType:
    typed: bool
    version: int
    upcasters: frozenset[int]

    def gap(self, version: int) -> int | None:
        """The first version on the way from *version* to the current one without an upcaster."""
        steps = range(version, self.version)
        return next((each for each in steps if each not in self.upcasters), None)

    @property
    def readable(self) -> list[int]:
        """The versions of stored events that become the current one, itself included."""
        return [each for each in range(1, self.version + 1) if self.gap(each) is None]


@dataclass(frozen=True, slots=True)
class CommittedListener:
    """A listener or a relay."""

    on: tuple[str, ...]
    classes: Mapping[str, str]
    is_relay: bool

    def wants(self, event_type: str) -> bool:
        return matcher(self.on)(event_type)


class Committed:
    """Raises :class:`ConfigError` for a document that is none of ours."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        try:
            self._read(document)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ConfigError(
                "this is not a catalogue that sa-outbox catalog has written: "
                f"{type(error).__name__}: {error}"
            ) from error

    def _read(self, document: Mapping[str, Any]) -> None:
        parts = document["components"]
        self.schemas: dict[str, Any] = dict(parts["schemas"])
        self.types: dict[str, CommittedType] = {
            each["name"]: _type(each[ABOUT]) for each in parts["messages"].values()
        }
        about = [each.get(ABOUT, {}) for each in document["operations"].values()]
        self.listeners: dict[str, CommittedListener] = {
            each["listener"]: _listener(each) for each in about if "listener" in each
        }
        self.relays: dict[str, CommittedListener] = {
            each["relay"]: _listener(each) for each in about if "relay" in each
        }
        self.channels: dict[str, Mapping[str, Any]] = {
            each[ABOUT]["relay"]: each
            for each in document["channels"].values()
            if "relay" in each[ABOUT]
        }

    def readers(self, event_type: str, *, relays_too: bool = True) -> Iterator[str]:
        """Who reads it, with the class that it becomes; also if the document does not have it."""
        for name, each in sorted((self.listeners | self.relays).items()):
            as_class = each.classes.get(event_type)
            if each.wants(event_type) and (relays_too or as_class or not each.is_relay):
                if each.is_relay:
                    yield f"relay {name}" + (f" (as {as_class})" if as_class else "")
                else:
                    yield f"{name} (as {as_class or 'JSON'})"

    def wants(self, listener: str, event_type: str) -> bool:
        """Whether there is this listener, and it reads the event type."""
        return listener in self.listeners and self.listeners[listener].wants(event_type)


def _type(about: Mapping[str, Any]) -> CommittedType:
    return CommittedType(bool(about["typed"]), int(about["version"]), frozenset(about["upcasters"]))


def _listener(about: Mapping[str, Any]) -> CommittedListener:
    return CommittedListener(tuple(about["on"]), about.get("classes", {}), "relay" in about)
