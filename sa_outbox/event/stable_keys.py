"""``stable_key``: an idempotency key derived from what an event is about.

The same input gives the same key in every process, on every machine and Python version, forever:
last week's events must still be recognised. So nothing here may depend on ``hash``, on the order of
a mapping or set, on a locale, or on ``repr`` of anything but a float. The keys in
``tests/unit/test_stable_keys.py`` are promises.

How: every value is encoded as bytes that include its kind and length, so that no two inputs
collide: ``["a", "b"]``, ``["ab"]`` and ``"a,b"`` are distinct. The bytes are hashed.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from hashlib import sha256
from typing import Final
from unicodedata import ucd_3_2_0
from uuid import UUID

from ..errors import InvalidEvent, PayloadError
from .validation import MAX_KEY_BYTES, check_event_type, checked_text

_DIGITS: Final = 32
_DEEPEST: Final = 100
_MICROSECOND: Final = timedelta(microseconds=1)


def stable_key(
    event_type: str, *parts: object, tenant: str | None = None, project_id: str | None = None
) -> str:
    """An ``idempotency_key`` made of *parts*: ``<event type>:<tenant>:<project>:<hash>``.

    ::

        stable_key("report.due", report.id, date(2025, 6, 1), tenant="acme")
        # report.due:acme::<32 hexadecimal digits>

    Parts are text, numbers, bool, None, bytes, UUIDs, dates, times, enums, and mappings, sequences
    and sets of them. The order of a mapping or set does not matter; ``1``, ``1.0`` and
    ``Decimal("1.00")`` are one number; a datetime is an instant; docs/idempotency.md has the
    details. The hash covers everything, including event type, tenant and project. The text before
    it is for people, and is truncated where the key would exceed 512 bytes.

    Raises :class:`InvalidEvent` for an invalid argument, :class:`PayloadError` with the path for a
    part that has no stable form.
    """
    check_event_type(event_type)
    event_type = str.__str__(event_type)  # for a subclass (an enum), the text itself
    tenant = checked_text("tenant", tenant)
    project_id = checked_text("project_id", project_id)
    if not parts:
        raise InvalidEvent(
            "stable_key needs what the event is about: without a part, one key serves all events "
            "of the type",
            field="parts",
        )
    content = b"".join(
        (
            _text(event_type),
            *(b"n" if each is None else _text(each) for each in (tenant, project_id)),
            _sequence(parts, "$", _DEEPEST),
        )
    )
    readable = f"{event_type}:{tenant or ''}:{project_id or ''}".encode()
    shown = readable[: MAX_KEY_BYTES - _DIGITS - 1].decode(errors="ignore")
    return f"{shown}:{sha256(content).hexdigest()[:_DIGITS]}"


def _canonical(value: object, path: str, room: int) -> bytes:
    """The bytes of *value*; *room* is how much deeper it may nest."""
    match value:
        case None:
            return b"n"
        case Enum():
            return _canonical(value.value, path, room)
        case bool():
            return b"t" if value else b"f"
        case str():
            return _normal_text(value, path)
        case int() | float() | Decimal():
            return _number(value, path)
        case bytes():
            return _sized(b"b", value)
        case UUID():
            return _text(str(value))  # as text, which is what JSON makes of it
        case date() | time() | timedelta():  # a datetime is a date
            return _time(value, path)
        case Mapping() | AbstractSet() | list() | tuple():
            return _container(value, path, room)
        case _:
            raise PayloadError(
                f"{type(value).__qualname__} has no stable form: pass the values that matter",
                path=path,
                field="parts",
            )


def _container(
    value: Mapping[object, object] | AbstractSet[object] | list[object] | tuple[object, ...],
    path: str,
    room: int,
) -> bytes:
    if room < 1:
        raise PayloadError("nested too deeply, or within itself", path=path, field="parts")
    if isinstance(value, Mapping):
        return _mapping(value, path, room)
    if isinstance(value, (list, tuple)):
        return _sequence(value, path, room)
    # A set has no positions, so an item's path is that of the set.
    items = sorted({_canonical(each, f"{path}{{}}", room - 1) for each in value})
    return _counted(b"s", items)


def _mapping(mapping: Mapping[object, object], path: str, room: int) -> bytes:
    pairs: dict[bytes, bytes] = {}
    for key, item in mapping.items():
        step = f"{path}.{key:.40}" if _is_plain_name(key) else f"{path}[{key!a:.40}]"
        name = _canonical(key, step, room - 1)
        if name in pairs:
            raise PayloadError("two keys become one", path=step, field="parts")
        pairs[name] = _canonical(item, step, room - 1)
    return _counted(b"m", [name + pairs[name] for name in sorted(pairs)])


def _is_plain_name(key: object) -> bool:
    return type(key) is str and key.isascii() and key.isidentifier()


def _sequence(sequence: list[object] | tuple[object, ...], path: str, room: int) -> bytes:
    return _counted(
        b"l",
        [_canonical(each, f"{path}[{index}]", room - 1) for index, each in enumerate(sequence)],
    )


def _normal_text(text: str, path: str) -> bytes:
    text = str.__str__(text)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise PayloadError("a lone surrogate", path=path, field="parts") from None
    # NFC by the tables of Unicode 3.2, which every Python ships beside its own: with newer tables,
    # a key could change with the Python version.
    return _text(text if text.isascii() else ucd_3_2_0.normalize("NFC", text))


def _number(value: float | Decimal, path: str) -> bytes:
    """Digits without trailing zeros, and the exponent: identical for every way to write a
    number."""
    if isinstance(value, float):
        # The shortest form that reads back as the same number: 0.1 is Decimal("0.1").
        value = Decimal(float.__repr__(value))
    sign, digits, exponent = Decimal(value).as_tuple()
    if not isinstance(exponent, int):
        raise PayloadError("not a finite number", path=path, field="parts")
    written = "".join(map(str, digits)).lstrip("0")
    significant = written.rstrip("0")
    if not significant:
        return _sized(b"i", b"0")
    exponent += len(written) - len(significant)
    return _sized(b"i", f"{'-' if sign else ''}{significant}e{exponent}".encode())


def _time(value: date | time | timedelta, path: str) -> bytes:
    if isinstance(value, timedelta):
        return _sized(b"p", str(value // _MICROSECOND).encode())
    if isinstance(value, time):
        if value.tzinfo is not None:
            raise PayloadError("a time of day with a time zone", path=path, field="parts")
        return _sized(b"c", time.isoformat(value, "microseconds").encode())
    if not isinstance(value, datetime):
        return _sized(b"y", date.isoformat(value).encode())
    try:
        moment = None if value.utcoffset() is None else value.astimezone(UTC)
    except Exception as error:  # a tzinfo is user code; an overflow at the ends of time
        raise PayloadError(
            f"a datetime that can't be understood: {type(error).__name__}",
            path=path,
            field="parts",
        ) from error
    if moment is None:
        raise PayloadError("a datetime without time zone: make it aware", path=path, field="parts")
    return _sized(b"d", datetime.isoformat(moment, timespec="microseconds").encode())


def _text(text: str) -> bytes:
    return _sized(b"x", text.encode())


def _sized(kind: bytes, content: bytes) -> bytes:
    return b"%b%d:%b" % (kind, len(content), content)


def _counted(kind: bytes, items: list[bytes]) -> bytes:
    return b"%b%d:%b" % (kind, len(items), b"".join(items))
