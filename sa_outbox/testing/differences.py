"""What is expected of an event, and in what another one differs. Pure.

Values are compared as they are stored: a ``UUID`` or a ``datetime`` equals its text, a dataclass
its fields. What can't be stored, such as ``unittest.mock.ANY`` or ``pytest.approx``, is compared
with what is stored by its own ``==``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sa_outbox.errors import PayloadError
from sa_outbox.event.codec import decode, encode
from sa_outbox.event.type_patterns import matcher, type_pattern
from sa_outbox.event.types import event_types

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ANYTHING: Final = object()
"""Any payload."""
_MISSING: Final = object()
_MAX_BYTES, _MAX_DEPTH = 2**30, 100
ANOTHER_TYPE = 1000
"""Differences that an event of another type counts as having: it is never the nearest."""


class Expected:
    """An event type or pattern, its whole payload or some fields of it."""

    def __init__(self, event: object, payload: object, fields: Mapping[str, object]) -> None:
        if not isinstance(event, (str, type)):
            event, payload = type(event), event
        named = event if isinstance(event, str) else event_types.of(event).name
        self.event_type: str = type_pattern("expected", named)
        self.is_type: Callable[[str], bool] = matcher((self.event_type,))
        self._payload = payload
        self._fields = fields

    def differences(self, event_type: str, payload: object) -> list[str]:
        """In what an event differs, a line each; none if it is as expected. *payload* is as
        stored."""
        if not self.is_type(event_type):
            return [f"event type: expected {self.event_type}, found {event_type}"]
        lines = []
        if self._payload is not ANYTHING:
            lines += _differences("payload", self._payload, payload)
        for name, value in self._fields.items():
            found = payload.get(name, _MISSING) if isinstance(payload, dict) else _MISSING
            lines += _differences(name, value, found)
        return lines

    def distance(self, event_type: str, payload: object) -> int:
        """How far an event is from what is expected, to find the nearest."""
        found = len(self.differences(event_type, payload))
        return found if self.is_type(event_type) else ANOTHER_TYPE

    def __str__(self) -> str:
        parts = [] if self._payload is ANYTHING else [f"payload {shown(self._payload)}"]
        parts += [f"{name}={shown(value)}" for name, value in self._fields.items()]
        return f"{self.event_type} with {', '.join(parts)}" if parts else self.event_type


def shown(value: object, limit: int = 300) -> str:
    text = repr(value)
    return text if len(text) <= limit else f"{text[:limit]}..."


def as_stored(value: object) -> Any:
    """*value* as it would be read back. Raises :class:`PayloadError` if it can't be stored."""
    return decode(encode(value, max_bytes=_MAX_BYTES, max_depth=_MAX_DEPTH))


def _differences(name: str, expected: object, found: object) -> list[str]:
    if found is _MISSING:
        return [f"{name}: expected {shown(expected)}, and there is no such field"]
    if bool(expected == found):
        return []
    try:
        stored = as_stored(expected)
    except PayloadError:
        stored = expected
    if stored == found:
        return []
    if isinstance(stored, dict) and isinstance(found, dict):
        return _in_fields(name, stored, found)
    return [f"{name}: expected {shown(stored)}, found {shown(found)}"]


def _in_fields(name: str, expected: dict[str, Any], found: dict[str, Any]) -> list[str]:
    lines = []
    for field, value in expected.items():
        lines += _differences(f"{name}.{field}", value, found.get(field, _MISSING))
    for field in found.keys() - expected.keys():
        lines.append(f"{name}.{field}: not expected, found {shown(found[field])}")
    return lines
