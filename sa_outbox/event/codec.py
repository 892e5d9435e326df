"""Payload to JSON and back. Strict on the way in, so that what is stored can be read again.

JSON, and PostgreSQL's jsonb even more, can't hold everything Python can: NaN, the character
U+0000, lone surrogates, a key that is not text. Common encoders let them pass or change them
silently; the database then refuses the INSERT and the caller's whole transaction with it. Here
they are refused at ``add_event``, with the path to the value.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from math import isfinite
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from ..errors import DecodeError, PayloadError, PayloadTooLarge

if TYPE_CHECKING:
    from .event import Json

_PLAIN = frozenset({str, int, bool, type(None)})
_SCALARS = (str, int, float, Decimal, UUID, date, time, timedelta)  # datetime is a date
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_EXPONENT = re.compile(rb"e-?[0-9]+(?:[,\]}]|$)")  # starts with a letter: quick to search
MAX_EXPANDED = 64
"""No number grows by a larger factor: 1e308 (six characters with its comma) becomes 309 digits."""


class _UnfitError(Exception):
    """A value that can't be JSON, with the path that led to it, innermost step first."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
        self.steps: list[str] = []

    @property
    def path(self) -> str:
        return "$" + "".join(reversed(self.steps))


def encode(payload: object, *, max_bytes: int, max_depth: int, field: str = "payload") -> str:
    """The payload as JSON text, a snapshot of this moment. Raises :class:`PayloadError`."""
    try:
        plain: Any = payload if type(payload) in _PLAIN else _plain(payload, max_depth)
    except _UnfitError as unfit:
        raise PayloadError(unfit.message, path=unfit.path, field=field) from unfit.__cause__
    except Exception as error:  # a mapping of the user's own, changed or failing while it is read
        raise PayloadError(f"reading it failed: {type(error).__name__}", field=field) from error
    try:
        raw = _encode(plain)
    except ValueError as error:  # lone surrogates (UnicodeEncodeError) and endless integers
        raise _located(plain, field, str(error)) from None
    # The escape may also be six literal characters, in a text about JSON: look closer.
    if b"\\u0000" in raw and _find(plain, _has_nul) is not None:
        raise _located(plain, field, "")
    size = len(raw)
    if size > max_bytes // MAX_EXPANDED and _EXPONENT.search(raw) is not None:
        size += _expansion(plain)
    if size > max_bytes:
        raise PayloadTooLarge(size, max_bytes, field=field)
    return raw.decode()


def _expansion(plain: object) -> int:
    """By how many bytes the numbers in *plain* grow when stored as jsonb."""
    if type(plain) is float:
        text = repr(plain)
        return len(f"{Decimal(text):f}") - len(_encode(plain)) if "e" in text else 0
    if type(plain) is dict:
        return sum([_expansion(item) for item in plain.values()])
    if type(plain) is list:
        return sum([_expansion(item) for item in plain])
    return 0


def encode_plain(value: Json) -> str:
    """JSON of a value known to be plain and checked."""
    return _encode(value).decode()


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


def _plain(value: object, room: int) -> Json:
    """Rebuild *value* from dict, list, str, int, float, bool and None, or raise with the path."""
    kind = type(value)
    if kind in _PLAIN:
        return value  # type: ignore[return-value]  # one of the four, by the line above
    if kind is float:
        return _finite(value)  # type: ignore[arg-type]  # a float, by the line above
    if kind is dict:
        return _plain_mapping(value, room)  # type: ignore[arg-type]  # a dict, by the line above
    if kind is list or kind is tuple:
        return _plain_sequence(value, room)  # type: ignore[arg-type]  # a sequence
    return _plain_object(value, room)


def _plain_mapping(mapping: Mapping[object, object], room: int) -> Json:
    if room < 1:
        raise _UnfitError("nested too deeply, or within itself")
    plain: dict[str, Json] = {}
    name: object = ""
    try:
        for name, item in mapping.items():
            key = name if type(name) is str else _text_key(name)
            plain[key] = item if type(item) in _PLAIN else _plain(item, room - 1)  # type: ignore[assignment]  # plain, by the test
    except _UnfitError as unfit:
        unfit.steps.append(_step(name))
        raise
    if len(plain) != len(mapping):
        raise _UnfitError("two keys become one, and a value would vanish")
    return plain


def _step(name: object) -> str:
    """A key as part of a path: short and printable, whatever it is."""
    return f".{ascii(name)[1:-1]:.40}" if isinstance(name, str) else f"[{name!a:.40}]"


def _plain_sequence(sequence: list[object] | tuple[object, ...], room: int) -> Json:
    if room < 1:
        raise _UnfitError("nested too deeply, or within itself")
    plain: list[Json] = []
    try:
        for item in sequence:
            plain.append(item if type(item) in _PLAIN else _plain(item, room - 1))  # type: ignore[arg-type]  # noqa: PERF401 - its length is the index of the one that fails
    except _UnfitError as unfit:
        unfit.steps.append(f"[{len(plain)}]")
        raise
    return plain


def _plain_object(value: object, room: int) -> Json:
    if isinstance(value, Enum):
        return _plain(value.value, room)
    if isinstance(value, _SCALARS):
        return _plain_scalar(value)
    if isinstance(value, Mapping):
        return _plain_mapping(value, room)
    if isinstance(value, (list, tuple)):
        return _plain_sequence(value, room)
    if isinstance(value, msgspec.Struct):
        return _plain_struct(value, room)
    content = _content_of(value)
    # A model with a root has no fields: the root is its content.
    return _plain_mapping(content, room) if isinstance(content, dict) else _plain(content, room)


def _plain_scalar(value: object) -> Json:
    """Convert subclasses of JSON's types, and types that JSON has to spell as text."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return _finite(float(value))
    if isinstance(value, Decimal):
        if not value.is_finite():
            raise _UnfitError(f"{value} is not a number JSON knows")
        return str(value)
    if isinstance(value, datetime) and value.utcoffset() is None:
        raise _UnfitError("a datetime without time zone: make it aware")
    text: str = msgspec.to_builtins(value)
    return text


def _plain_struct(value: msgspec.Struct, room: int) -> Json:
    """Encode it as msgspec would: renamed, tagged, as an array if that is how it is read."""
    config = value.__struct_config__
    values = [getattr(value, name) for name in value.__struct_fields__]
    if config.array_like:
        return _plain_sequence(values if config.tag is None else [config.tag, *values], room)
    fields: dict[object, object] = {}
    if config.tag is not None:
        fields[config.tag_field] = config.tag
    fields.update(zip(value.__struct_encode_fields__, values, strict=True))
    return _plain_mapping(fields, room)


def _content_of(value: object) -> object:
    """The fields of a dataclass or attrs object by name, or what a pydantic model dumps."""
    kind = type(value)
    names: Any
    if hasattr(kind, "__mapper__"):  # first: a mapped class may be a dataclass too
        raise _UnfitError(
            f"{kind.__qualname__} is a mapped entity: put the values you need into the payload"
        )
    if dataclasses.is_dataclass(kind):
        names = [each.name for each in dataclasses.fields(kind)]
    elif (attributes := getattr(kind, "__attrs_attrs__", None)) is not None:
        names = [each.name for each in attributes]
    else:
        dump: Callable[..., object] | None = getattr(value, "model_dump", None)
        if dump is None or isinstance(value, type):
            raise _UnfitError(f"{kind.__qualname__} is not JSON{_HINTS.get(kind, '')}")
        return _read(lambda: dump(by_alias=True, round_trip=True))
    return _read(lambda: {name: getattr(value, name) for name in names})


def _read(content: Callable[[], object]) -> object:
    # A property, validator or lazy attribute is user code: if it fails, the payload is at fault.
    try:
        return content()
    except Exception as error:
        raise _UnfitError(f"reading it failed: {type(error).__name__}") from error


_HINTS: dict[type, str] = {
    set: ": it has no order, use a sorted list",
    frozenset: ": it has no order, use a sorted list",
    bytes: ": encode it as text, for example base64",
    bytearray: ": encode it as text, for example base64",
}


def _finite(number: float) -> float:
    if not isfinite(number):
        raise _UnfitError(f"{number} is not a number JSON knows")
    return number


def _text_key(name: object) -> str:
    if isinstance(name, Enum):
        name = name.value
    if not isinstance(name, str):
        # Converted to text, 1 and "1" would become the same key and a value would be lost.
        raise _UnfitError(f"a key must be text, not {type(name).__name__}")
    return str.__str__(name)


def _located(plain: object, field: str, otherwise: str) -> PayloadError:
    for refused, why in (
        (_has_nul, "the character U+0000, which PostgreSQL can't store"),
        (_has_surrogate, "a lone surrogate, which is not a character"),
        (_is_endless, "an integer of more than 4,300 digits"),
    ):
        path = _find(plain, refused)
        if path is not None:
            return PayloadError(why, path=path, field=field)
    return PayloadError(otherwise, field=field)


def _find(plain: object, refused: Callable[[object], bool], path: str = "$") -> str | None:
    """The path of the first value (or key) that is refused. Off the hot path."""
    if isinstance(plain, dict):
        for name, item in plain.items():
            step = path + _step(name)
            found = step if refused(name) else _find(item, refused, step)
            if found is not None:
                return found
        return None
    if isinstance(plain, list):
        for index, item in enumerate(plain):
            found = _find(item, refused, f"{path}[{index}]")
            if found is not None:
                return found
        return None
    return path if refused(plain) else None


def _has_nul(value: object) -> bool:
    return isinstance(value, str) and "\x00" in value


def _has_surrogate(value: object) -> bool:
    return isinstance(value, str) and any("\ud800" <= each <= "\udfff" for each in value)


def _is_endless(value: object) -> bool:
    return isinstance(value, int) and value.bit_length() > 14_280  # 4,300 decimal digits
