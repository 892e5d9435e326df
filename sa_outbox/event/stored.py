"""From a row of the log to the event that a handler gets: a new one for each attempt, because
handlers modify things.

What a handler may never read stays as it is stored: payload, headers, times. Whoever reads one that
can't be decoded gets :class:`DecodeError`, which fails the attempt. A payload with a class is built
at once, and so is all of a batch: an event of it that can't be read must fail alone.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ..errors import DecodeError
from .event import Event, EventFields, as_time
from .row import CREATED_AT, EVENT_TYPE, HEADERS, RUN_AT
from .types import event_types, version_of

_new, _set = object.__new__, object.__setattr__
_FIRST_TIME, _LAST_TIME = -62135596800.0, 253402300799.0
"""The years 1 to 9999, in seconds since 1970."""


def load_event(row: Any, payload_class: type | None) -> Event[Any]:
    """The event of *row*, decoded as far as it must be.

    Raises :class:`DecodeError` for a time or headers that can't be right, and for a payload that
    does not fit its class.
    """
    # Set before the object becomes an event, which is immutable: a seventh of the time.
    made: Any = _new(EventFields)
    (
        made.position,
        made.event_id,
        made.event_type,
        made._key,  # noqa: SLF001 - an event's own attributes
        made.tenant,
        made._text,  # noqa: SLF001
        made._headers,  # noqa: SLF001
        made._run_at,  # noqa: SLF001
        made.priority,
        made._created_at,  # noqa: SLF001
    ) = row[: CREATED_AT + 1]
    made.idempotency_key = made.duplicate_of = None
    made.__class__ = Event
    event: Event[Any] = made
    if not _FIRST_TIME <= row[CREATED_AT] < _LAST_TIME:
        as_time(row[CREATED_AT])
    if row[RUN_AT] is not None:
        as_time(row[RUN_AT])
    if row[HEADERS][:1] != "{":
        raise DecodeError("the stored headers are not an object")
    if payload_class is not None or event_types.knows(row[EVENT_TYPE]):
        _build_payload(event, payload_class)
    return event


def load_whole(row: Any, payload_class: type | None) -> Event[Any]:
    """``load_event``, and everything of it can be decoded."""
    event = load_event(row, payload_class)
    _ = event.headers, event.payload
    return event


def load_to_forward(row: Any, payload_class: type | None) -> Event[Any]:
    """``load_event`` for a relay, with headers that can be decoded. Most relays send the payload as
    it is stored, unless it has a class: then older versions are upgraded before they are sent."""
    event = load_event(row, payload_class)
    _ = event.headers
    return event


def _build_payload(event: Event[Any], payload_class: type | None) -> None:
    name = event.event_type
    payload = event_types.load(name, version_of(event.headers), event.payload)
    if payload_class is not None and not _fits(payload, payload_class):
        payload = _converted(payload, payload_class, name)
    _set(event, "_payload", payload)


def _fits(payload: Any, payload_class: type) -> bool:
    try:
        return isinstance(payload, payload_class)
    except TypeError:  # a TypedDict: the converter checks its content
        return False


def _converted(payload: Any, payload_class: type, event_type: str) -> Any:
    validate = getattr(payload_class, "model_validate", None)
    try:
        return msgspec.convert(payload, payload_class) if validate is None else validate(payload)
    except (ValueError, TypeError) as error:
        raise DecodeError(
            f"the payload of {event_type!r} does not fit {payload_class.__qualname__}, as which "
            "the handler's argument is annotated"
        ) from error
