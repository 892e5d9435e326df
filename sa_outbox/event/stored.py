"""From a row of the log to the event that a handler gets: a new one for each attempt, because
handlers modify things.

What a handler may never read stays as it is stored: payload, headers, times. Whoever reads one that
can't be decoded gets :class:`DecodeError`, which fails the attempt. At once, older versions are
upgraded, the object is built that the handler's annotation asks for, and everything of a batch is
decoded: an event of it that can't be read must fail alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_origin

from ..errors import DecodeError
from .event import Event, EventFields, as_time
from .row import CREATED_AT, EVENT_TYPE, HEADERS, RUN_AT
from .types import build, event_types, version_of

if TYPE_CHECKING:
    from .wanted import Wanted

_new, _set = object.__new__, object.__setattr__
_FIRST_TIME, _LAST_TIME = -62135596800.0, 253402300799.0
"""The years 1 to 9999, in seconds since 1970."""


def load_event(row: Any, wanted: Wanted | None) -> Event[Any]:
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
    made.duplicate_of = None
    made.__class__ = Event
    event: Event[Any] = made
    if not _FIRST_TIME <= row[CREATED_AT] < _LAST_TIME:
        as_time(row[CREATED_AT])
    if row[RUN_AT] is not None:
        as_time(row[RUN_AT])
    if row[HEADERS][:1] != "{":
        raise DecodeError("the stored headers are not an object")
    if wanted is not None:
        _build_payload(event, wanted)
    elif event_types.has_upcasters(row[EVENT_TYPE]):
        _upgrade_payload(event)
    return event


def load_whole(row: Any, wanted: Wanted | None) -> Event[Any]:
    """``load_event``, and everything of it can be decoded."""
    event = load_event(row, wanted)
    _ = event.headers, event.payload
    return event


def load_to_forward(row: Any, wanted: Wanted | None) -> Event[Any]:
    """``load_event`` for a relay, with headers that can be decoded. Most relays send the payload as
    it is stored; older versions that have upcasters are upgraded before they are sent."""
    event = load_event(row, wanted)
    _ = event.headers
    return event


def now_attempt(event: Event[object], number: int) -> None:
    """It was attempted before: this is attempt *number*. Called by the consumer."""
    _set(event, "_attempt", number)


def now_cancel_requested(event: Event[object]) -> None:
    """Mark *event* as cancelled: its handler should give up. Called by the consumer."""
    _set(event, "_cancel_requested", True)  # noqa: FBT003 - the value


def _build_payload(event: Event[Any], wanted: Wanted) -> None:
    name = event.event_type
    registered = event_types.class_of(name)
    form = wanted.form_of(registered)
    if registered is not None and (get_origin(form) or form) is registered:
        _upgrade(event, version_of(event.headers))
    else:
        _upgrade_payload(event)
    if form is None:
        return
    payload = event.payload
    if not _fits(payload, form):
        _set(event, "_payload", build(form, payload, name))


def _upgrade_payload(event: Event[Any]) -> None:
    """Take it to the current version, if upcasters lead there. Otherwise it stays as it is: nobody
    asked for the class."""
    version = version_of(event.headers)
    if event_types.can_upgrade(event.event_type, version):
        _upgrade(event, version)


def _upgrade(event: Event[Any], version: int) -> None:
    newest = event_types.version_of(event.event_type)
    if version != newest:
        _set(event, "_payload", event_types.upgrade(event.event_type, version, event.payload))
        _set(event, "_headers", {**event.headers, "version": newest})


def _fits(payload: Any, form: Any) -> bool:
    try:
        return isinstance(payload, form)
    except TypeError:  # a TypedDict or a generic: the converter checks its content
        return False
