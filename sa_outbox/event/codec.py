"""Payload to JSON and back. Strict on the way in, so that what is stored can be read again.

JSON, and PostgreSQL's jsonb even more, can't hold everything Python can: NaN, the character
U+0000, lone surrogates, a key that is not text. Common encoders let them pass or change them
silently; the database then refuses the INSERT and the caller's whole transaction with it. Here
they are refused at ``add_event``, with the path to the value.

A value inside an object of a class may be a little more than one in a dict: whoever reads the event
with that class turns a list into a set again, and base64 into bytes.
"""

from __future__ import annotations

import json
import re
import sys
from base64 import b64encode
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from math import isfinite
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from ..errors import DecodeError, PayloadError, PayloadTooLarge
from .objects import PLAIN, UnfitError, content_of, step

if TYPE_CHECKING:
    from collections.abc import Callable

    from .event import Json

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_EXPONENT = re.compile(rb"e-?[0-9]+(?:[,\]}]|$)")  # starts with a letter: quick to search
_DEEPEST = 200
"""The most that ``max_payload_depth`` may be."""
MAX_EXPANDED = 64
"""No number grows by a larger factor: 1e308 (six characters with its comma) becomes 309 digits."""
_SCALARS = (str, int, float, Decimal, UUID, date, time, timedelta)  # datetime is a date
_BYTES = (bytes, bytearray)
_SETS = (set, frozenset)
_HINTS: dict[type, str] = {
    set: ": it has no order, use a sorted list",
    frozenset: ": it has no order, use a sorted list",
    bytes: ": encode it as text, for example base64",
    bytearray: ": encode it as text, for example base64",
}


def encode(payload: object, *, max_bytes: int, max_depth: int, field: str = "payload") -> str:
    """The payload as JSON text, a snapshot of this moment. Raises :class:`PayloadError`."""
    try:
        value: Any = payload if type(payload) in PLAIN else plain(payload, max_depth)
    except UnfitError as unfit:
        raise PayloadError(unfit.message, path=unfit.path, field=field) from unfit.__cause__
    except Exception as error:  # a mapping of the user's own, changed or failing while it is read
        raise PayloadError(f"reading it failed: {type(error).__name__}", field=field) from error
    try:
        raw = _encode(value)
    except ValueError as error:  # lone surrogates (UnicodeEncodeError) and endless integers
        raise _located(value, field, str(error)) from None
    # The escape may also be six literal characters, in a text about JSON: look closer.
    if b"\\u0000" in raw and _find(value, _has_nul) is not None:
        raise _located(value, field, "")
    size = len(raw)
    if size > max_bytes // MAX_EXPANDED and _EXPONENT.search(raw) is not None:
        size += _expansion(value)
    if size > max_bytes:
        raise PayloadTooLarge(size, max_bytes, field=field)
    return raw.decode()


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


def _expansion(value: object) -> int:
    """By how many bytes the numbers in *value* grow when stored as jsonb."""
    if type(value) is float:
        text = repr(value)
        return len(f"{Decimal(text):f}") - len(_encode(value)) if "e" in text else 0
    if type(value) is dict:
        return sum([_expansion(item) for item in value.values()])
    if type(value) is list:
        return sum([_expansion(item) for item in value])
    return 0


def encode_plain(value: Json) -> str:
    """JSON of a value known to be plain and checked."""
    return _encode(value).decode()


def encode_loaded(payload: object) -> str:
    """JSON of a payload from the log that its reader may have changed: as JSON, or as an object of
    a class. Raises :class:`PayloadError`."""
    if type(payload) is dict or type(payload) is list:
        try:
            return _encode(payload).decode()
        except (TypeError, ValueError):  # something in it has to be looked at
            pass
    return encode(payload, max_bytes=sys.maxsize, max_depth=_DEEPEST)


def decode(text: str | bytes) -> Any:
    """Decode stored JSON to plain Python. Raises :class:`DecodeError`, for this payload only."""
    try:
        return _decode(text)
    except (ValueError, RecursionError):
        return _decode_slowly(text)


def _decode_slowly(text: str | bytes) -> Any:
    """The standard library reads a few integers that the fast decoder does not."""
    try:
        return json.loads(text, parse_float=_readable, parse_constant=_readable)
    except (ValueError, RecursionError) as error:
        raise DecodeError(f"the stored payload can't be read: {error}") from error


def _readable(number: str) -> float:
    found = float(number)
    if not isfinite(found):
        raise ValueError(f"{number:.40} is beyond a float")
    return found


def _located(value: object, field: str, otherwise: str) -> PayloadError:
    for refused, why in (
        (_has_nul, "the character U+0000, which PostgreSQL can't store"),
        (_has_surrogate, "a lone surrogate, which is not a character"),
        (_is_endless, "an integer of more than 4,300 digits"),
    ):
        path = _find(value, refused)
        if path is not None:
            return PayloadError(why, path=path, field=field)
    return PayloadError(otherwise, field=field)


def _find(value: object, refused: Callable[[object], bool], path: str = "$") -> str | None:
    """The path of the first value (or key) that is refused. Off the hot path."""
    if isinstance(value, dict):
        for name, item in value.items():
            place = path + step(name)
            found = place if refused(name) else _find(item, refused, place)
            if found is not None:
                return found
        return None
    if isinstance(value, list):
        for index, item in enumerate(value):
            found = _find(item, refused, f"{path}[{index}]")
            if found is not None:
                return found
        return None
    return path if refused(value) else None


def _has_nul(value: object) -> bool:
    return isinstance(value, str) and "\x00" in value


def _has_surrogate(value: object) -> bool:
    return isinstance(value, str) and any("\ud800" <= each <= "\udfff" for each in value)


def _is_endless(value: object) -> bool:
    return isinstance(value, int) and value.bit_length() > 14_280  # 4,300 decimal digits
