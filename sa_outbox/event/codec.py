"""Payload to JSON and back. Strict on the way in, so that what is stored can be read again.

JSON, and PostgreSQL's jsonb even more, can't hold everything Python can: NaN, the character
U+0000, lone surrogates, a key that is not text. Common encoders let them pass or change them
silently; the database then refuses the INSERT and the caller's whole transaction with it. Here
they are refused at ``add_event``, with the path to the value.
"""

from __future__ import annotations

import json
import re
import sys
from decimal import Decimal
from math import isfinite
from typing import TYPE_CHECKING, Any

import msgspec

from ..errors import DecodeError, PayloadError, PayloadTooLarge
from .objects import PLAIN, UnfitError, step
from .plain import plain

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
            place = path + step(name)
            found = place if refused(name) else _find(item, refused, place)
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
