"""What ``on=`` says: event types, with ``*`` for any run of characters, and ``!`` for others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from ..errors import ConfigError
from ..event.type_patterns import NOT, excluded, matcher, type_pattern, wanted

On: TypeAlias = str | type | Iterable[str | type]


def patterns(name: str, on: On) -> tuple[str, ...]:
    """What the listener *name* listens to, as text. Raises :class:`ConfigError`."""
    if not isinstance(on, (str, type, Iterable)):
        raise ConfigError(f"on= of listener {name!r} must be event types, not {on!r}")
    each = (on,) if isinstance(on, (str, type)) else tuple(on)
    found = dict.fromkeys(_pattern(name, one) for one in each)
    if not wanted(found):
        raise ConfigError(f"on= of listener {name!r} is empty: it would never get an event")
    is_excluded = matcher(tuple(excluded(found)))
    for one in wanted(found):
        if is_excluded(one):  # only a * matches a *
            raise ConfigError(f"on= of listener {name!r} has {one!r}, and excludes all of it")
    if "*" in found:
        return ("*", *(NOT + one for one in excluded(found)))
    return tuple(found)


def _pattern(name: str, one: object) -> str:
    where = f"on= of listener {name!r}"
    if isinstance(one, str) and one.startswith(NOT):
        return NOT + type_pattern(where, str.__str__(one).removeprefix(NOT))
    return type_pattern(where, one)
