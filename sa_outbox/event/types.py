"""Event types: a class, its name in the log, its version, and how to read older versions.

The registry is per process, not per ``Outbox``: entities record events without knowing which outbox
their session belongs to, so a domain model need not import the application.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from ..errors import ConfigError, DecodeError, UnknownEventType
from .event import Json
from .objects import object_of
from .validation import check_event_type

T = TypeVar("T")

Upcaster = Callable[[Any], Json]
"""Converts the payload of one version (decoded JSON) to the next version."""


@dataclass(frozen=True, slots=True)
class EventType(Generic[T]):
    """The name and version under which objects of a class are stored."""

    name: str
    version: int
    payload_class: type[T]


class EventTypes:
    """The registered event types, by class and by name."""

    def __init__(self) -> None:
        self._by_class: dict[type, EventType[Any]] = {}
        self._by_name: dict[str, EventType[Any]] = {}
        self._upcasters: dict[tuple[str, int], Upcaster] = {}
        self._upcast: set[str] = set()
        self.knows: Callable[[str], bool] = self._by_name.__contains__
        """Whether a class is registered under a name. No method: it is asked for each event."""
        self.has_upcasters: Callable[[str], bool] = self._upcast.__contains__
        """Whether payloads of a name may need upgrading; asked for each event too."""

    def register(self, name: str, *, version: int = 1) -> Callable[[type[T]], type[T]]:
        """Class decorator: store objects of this class as events of type *name*.

        For dataclasses, attrs classes, ``msgspec.Struct`` and pydantic models. Increase *version*
        when older payloads no longer fit the class, and add an upcaster for them.
        """
        name = str.__str__(name) if isinstance(name, str) else name
        check_event_type(name)
        if type(version) is not int or version < 1:
            raise ConfigError(f"version of {name!r} must be 1 or more, not {version!r}")

        def decorate(cls: type[T]) -> type[T]:
            if not isinstance(cls, type):
                raise ConfigError(f"@event_type({name!r}) is for a class, not {cls!r:.40}")
            self._add(EventType(name, version, cls))
            return cls

        return decorate

    def upcast(self, name: str, *, since: int) -> Callable[[Upcaster], Upcaster]:
        """Decorator: this function upgrades a payload from version *since* to *since* + 1."""
        check_event_type(name)
        if type(since) is not int or since < 1:
            raise ConfigError(f"since must be a version, 1 or more, not {since!r}")

        def decorate(function: Upcaster) -> Upcaster:
            if not callable(function):
                raise ConfigError(f"@upcaster({name!r}) is for a function, not {function!r:.40}")
            earlier = self._upcasters.get((name, since))
            if earlier is not None and not _same_definition(earlier, function):
                raise ConfigError(f"{name!r} has an upcaster from version {since} already")
            self._upcasters[name, since] = function
            self._upcast.add(name)
            return function

        return decorate

    def __iter__(self) -> Iterator[EventType[Any]]:
        return iter(tuple(self._by_name.values()))

    def of(self, cls: type[T]) -> EventType[T]:
        """The event type of a class, or :class:`UnknownEventType`."""
        found: EventType[T] | None = self._by_class.get(cls)
        if found is None:
            raise UnknownEventType(
                f"{cls.__qualname__} is not an event type: decorate the class with "
                '@event_type("some.name"), or pass a name and a payload',
                field="event_type",
            )
        return found

    def version_of(self, name: str) -> int | None:
        """The current version of a registered name; None if it is not registered."""
        known = self._by_name.get(name)
        return None if known is None else known.version

    def class_of(self, name: str) -> type | None:
        """The class registered under a name."""
        known = self._by_name.get(name)
        return None if known is None else known.payload_class

    def load(self, name: str, version: int, payload: Any) -> Any:
        """Build the registered object from decoded JSON; the payload of an unregistered name stays
        JSON."""
        known = self._by_name.get(name)
        if known is None:
            return payload
        upgraded = self.upgrade(name, version, payload)
        return build(known.payload_class, upgraded, name)

    def can_upgrade(self, name: str, version: int) -> bool:
        """Whether *version* is an older one, from which upcasters lead to the current one."""
        newest = self.version_of(name) or version
        steps = range(version, newest)
        return bool(steps) and all((name, since) in self._upcasters for since in steps)

    def upcasters_of(self, name: str) -> list[int]:
        """The versions from which there is an upcaster."""
        return sorted(since for each, since in self._upcasters if each == name)

    def upgrade(self, name: str, version: int, payload: Any) -> Any:
        """The decoded JSON of a registered name, in its current version. Raises
        :class:`DecodeError`."""
        newest = self.version_of(name) or version
        if version > newest:
            raise DecodeError(
                f"{name!r} was written in version {version}, this process knows {newest}: "
                "deploy the newer code to the consumer"
            )
        for since in range(version, newest):
            upcaster = self._upcasters.get((name, since))
            if upcaster is None:
                raise DecodeError(f"{name!r} has no upcaster from version {since}")
            try:
                payload = upcaster(payload)
            except Exception as error:
                raise DecodeError(
                    f"the upcaster of {name!r} from version {since} failed: {type(error).__name__}"
                ) from error
        return payload

    def _add(self, new: EventType[Any]) -> None:
        holder = self._by_name.get(new.name)
        if holder is not None and not _same_definition(holder.payload_class, new.payload_class):
            raise ConfigError(
                f"event type {new.name!r} belongs to {holder.payload_class.__qualname__} already"
            )
        other = self._by_class.get(new.payload_class)
        if other is not None and other != new:
            raise ConfigError(f"{new.payload_class.__qualname__} is {other.name!r} already")
        _check_aliases(new.payload_class)
        self._by_name[new.name] = self._by_class[new.payload_class] = new


def _same_definition(one: Any, other: Any) -> bool:
    # A reloaded module, or one that a test runner imports under two names, defines the class again.
    place = (one.__module__, one.__qualname__)
    return place == (other.__module__, other.__qualname__)


def _check_aliases(cls: type) -> None:
    """Refuse a pydantic model that is written under one name and read under another."""
    by_name = getattr(cls, "model_config", {}).get("validate_by_alias") is False
    for name, each in getattr(cls, "model_fields", {}).items():
        written = each.serialization_alias or each.alias or name
        read = name if by_name else each.validation_alias or each.alias or name
        if read != written:
            raise ConfigError(
                f"{cls.__qualname__}.{name} is written as {written!r} and read as {read!r}: an "
                "event type needs one alias for both"
            )


def build(cls: Any, payload: Any, name: str) -> Any:
    """An object of *cls* from the decoded JSON of an event type. Raises :class:`DecodeError`."""
    try:
        return object_of(cls, payload)
    except (ValueError, TypeError) as error:
        # Both msgspec.ValidationError and pydantic's are ValueErrors. The text of pydantic's
        # contains the input: it stays in the cause and out of our message.
        shown = cls.__qualname__ if isinstance(cls, type) else str(cls)
        raise DecodeError(f"the payload of {name!r} does not fit {shown}") from error


event_types: EventTypes = EventTypes()
event_type: Final = event_types.register
upcaster: Final = event_types.upcast


def version_of(headers: Mapping[str, str | int]) -> int:
    """The payload's version according to its headers; 1 if they have none."""
    version = headers.get("version", 1)
    return version if type(version) is int else 1
