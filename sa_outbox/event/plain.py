"""Rebuild a payload from dict, list, str, int, float, bool and None; what can't be is refused, with
the path to it.

A value inside an object of a class may be a little more than one in a dict: whoever reads the event
with that class turns a list into a set again, and base64 into bytes.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from math import isfinite
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from .objects import PLAIN, UnfitError, content_of, step

if TYPE_CHECKING:
    from .event import Json

_SCALARS = (str, int, float, Decimal, UUID, date, time, timedelta)  # datetime is a date
_BYTES = (bytes, bytearray)
_SETS = (set, frozenset)
_encode = msgspec.json.Encoder().encode
_HINTS: dict[type, str] = {
    set: ": it has no order, use a sorted list",
    frozenset: ": it has no order, use a sorted list",
    bytes: ": encode it as text, for example base64",
    bytearray: ": encode it as text, for example base64",
}


def plain(value: object, room: int, typed: bool = False) -> Json:  # noqa: FBT001, FBT002 - passed for each value
    """*value* as JSON's own types, nested up to *room* deep. Raises :class:`UnfitError`.

    *typed*: it is part of an object of a class.
    """
    kind = type(value)
    if kind in PLAIN:
        return value  # type: ignore[return-value]  # one of the four, by the line above
    if kind is float:
        return _finite(value)  # type: ignore[arg-type]  # a float, by the line above
    if kind is dict:
        return _mapping(value, room, typed)  # type: ignore[arg-type]  # a dict, by the line above
    if kind is list or kind is tuple:
        return _sequence(value, room, typed)  # type: ignore[arg-type]  # a sequence
    return _other(value, room, typed)


def _mapping(mapping: Mapping[object, object], room: int, typed: bool) -> Json:  # noqa: FBT001
    if room < 1:
        raise UnfitError("nested too deeply, or within itself")
    made: dict[str, Json] = {}
    name: object = ""
    try:
        for name, item in mapping.items():
            key = name if type(name) is str else _text_key(name, typed)
            made[key] = item if type(item) in PLAIN else plain(item, room - 1, typed)  # type: ignore[assignment]  # plain, by the test
    except UnfitError as unfit:
        unfit.steps.append(step(name))
        raise
    if len(made) != len(mapping):
        raise UnfitError("two keys become one, and a value would vanish")
    return made


def _sequence(sequence: list[object] | tuple[object, ...], room: int, typed: bool) -> Json:  # noqa: FBT001
    if room < 1:
        raise UnfitError("nested too deeply, or within itself")
    made: list[Json] = []
    try:
        for item in sequence:
            made.append(item if type(item) in PLAIN else plain(item, room - 1, typed))  # type: ignore[arg-type]  # noqa: PERF401 - its length is the index of the one that fails
    except UnfitError as unfit:
        unfit.steps.append(f"[{len(made)}]")
        raise
    return made


def _other(value: object, room: int, typed: bool) -> Json:  # noqa: FBT001
    if isinstance(value, Enum):
        return plain(value.value, room, typed)
    if isinstance(value, _SCALARS):
        return _scalar(value)
    if isinstance(value, Mapping):
        return _mapping(value, room, typed)
    if isinstance(value, (list, tuple)):
        return _sequence(value, room, typed)
    if isinstance(value, (*_SETS, *_BYTES)):
        return _read_by_its_class(value, room, typed)
    return plain(content_of(value, room), room, True)  # noqa: FBT003 - of a class


def _read_by_its_class(value: Any, room: int, typed: bool) -> Json:  # noqa: FBT001
    if not typed:
        kind = type(value)
        raise UnfitError(f"{kind.__qualname__} is not JSON{_HINTS.get(kind, '')}")
    if isinstance(value, _BYTES):
        return b64encode(value).decode()
    items: Any = _sequence(list(value), room, typed)
    return sorted(items, key=_encode)  # equal sets are stored alike


def _scalar(value: object) -> Json:
    """Convert subclasses of JSON's types, and types that JSON has to spell as text."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return _finite(float(value))
    if isinstance(value, Decimal):
        if not value.is_finite():
            raise UnfitError(f"{value} is not a number JSON knows")
        return str(value)
    if isinstance(value, datetime) and value.utcoffset() is None:
        raise UnfitError("a datetime without time zone: make it aware")
    text: str = msgspec.to_builtins(value)
    return text


def _finite(number: float) -> float:
    if not isfinite(number):
        raise UnfitError(f"{number} is not a number JSON knows")
    return number


def _text_key(name: object, typed: bool) -> str:  # noqa: FBT001
    if isinstance(name, Enum):
        name = name.value
    if typed and isinstance(name, _SCALARS) and not isinstance(name, (bool, float)):
        return str(_scalar(name))
    if not isinstance(name, str):
        # Converted to text, 1 and "1" would become the same key and a value would be lost.
        raise UnfitError(f"a key must be text, not {type(name).__name__}")
    return str.__str__(name)
