"""What ``on=`` says: event types, with ``*`` for any run of characters."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TypeAlias

from ..errors import ConfigError, UnknownEventType
from ..event.types import event_types

On: TypeAlias = str | type | Iterable[str | type]

MAX_TYPE = 200
_PATTERN = re.compile("[^\\s\\x00-\\x1f%\ud800-\udfff]+")


def patterns(name: str, on: On) -> tuple[str, ...]:
    """What the listener *name* listens to, as text. Raises :class:`ConfigError`."""
    if not isinstance(on, (str, type, Iterable)):
        raise ConfigError(f"on= of listener {name!r} must be event types, not {on!r}")
    each = (on,) if isinstance(on, (str, type)) else tuple(on)
    found = tuple(_pattern(name, one) for one in each)
    if not found:
        raise ConfigError(f"on= of listener {name!r} is empty: it would never get an event")
    for one in found:
        if not isinstance(one, str) or not _PATTERN.fullmatch(one) or len(one) > MAX_TYPE:
            raise ConfigError(
                f"on= of listener {name!r}: {one!r} is not an event type; use names such as "
                '"order.placed", and * for any run of characters'
            )
    return ("*",) if "*" in found else tuple(dict.fromkeys(found))


def matcher(on: tuple[str, ...]) -> Callable[[str], bool]:
    """A function that tells whether an event type is one of *on*."""
    if "*" in on:
        return lambda _: True
    names = frozenset(one for one in on if "*" not in one)
    if len(names) == len(on):
        return names.__contains__
    wild = [re.escape(one).replace(r"\*", ".*") for one in on if "*" in one]
    matches = re.compile("|".join(wild), re.DOTALL).fullmatch
    return lambda event_type: event_type in names or matches(event_type) is not None


def _pattern(name: str, one: object) -> str:
    if isinstance(one, type):
        try:
            return event_types.of(one).name
        except UnknownEventType as error:
            raise ConfigError(f"on= of listener {name!r}: {error}") from error
    # For a subclass (an enum), the text itself: the fingerprint is computed from it.
    return str.__str__(one) if isinstance(one, str) else one  # type: ignore[return-value]  # refused by the caller
