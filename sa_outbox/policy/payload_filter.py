"""The filter of a listener: fields that an event's payload must have, with these values. Pure.

PostgreSQL compares, with ``payload @> filter``: a value is equal if JSON says so (``1`` and ``1.0``
are, ``1`` and ``true`` are not), a missing field equals nothing, not even null, and a payload that
is no object has no fields. Lists are refused, because ``@>`` would take them for subsets.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final, TypeAlias

from ..errors import ConfigError

Where: TypeAlias = Mapping[str, str | int | float | bool | Mapping[str, object] | None]
"""Names of fields and their values; an object is one that has these fields."""

MAX_FILTER_BYTES: Final = 2000
_MAX_DEPTH = 10


def filter_text(what: str, where: object) -> str:
    """*where* as JSON; the same text for the same filter. Raises :class:`ConfigError`, in which
    *what* is the filter's name."""
    plain = _plain(what, where, _MAX_DEPTH)
    try:
        text = json.dumps(plain, ensure_ascii=False, allow_nan=False, sort_keys=True)
        size = len(text.encode())
    except ValueError as error:  # infinite, a lone surrogate, a number of too many digits
        raise ConfigError(f"{what} has a value that no payload can have: {error}") from error
    if size > MAX_FILTER_BYTES:
        raise ConfigError(f"{what} has {size} bytes as JSON; {MAX_FILTER_BYTES} are allowed")
    return text


def _plain(what: str, fields: object, depth: int) -> dict[str, object]:
    if not isinstance(fields, Mapping) or not fields:
        raise ConfigError(
            f'{what} must name fields of the payload and their values, as {{"kind": "user"}}, not '
            f"{fields!r:.100}"
        )
    if not depth:
        raise ConfigError(f"{what} has objects more than {_MAX_DEPTH} levels deep")
    return {_name(what, name): _value(what, name, fields[name], depth) for name in fields}


def _name(what: str, name: object) -> str:
    if not isinstance(name, str):
        raise ConfigError(f"{what} has a field whose name is not text: {name!r}")
    return _text(what, name)


def _value(what: str, name: str, value: object, depth: int) -> object:
    if isinstance(value, Mapping):
        return _plain(what, value, depth - 1)
    if isinstance(value, str):
        return _text(what, value)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    raise ConfigError(
        f"{what}: the value of {name!r} must be text, a number, True, False, None or an object of "
        f"these, not {type(value).__name__}"
    )


def _text(what: str, text: str) -> str:
    if "\0" in text:
        raise ConfigError(f"{what} has a NUL character, which no payload can have")
    return text
