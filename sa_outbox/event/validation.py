"""What ``add_event`` accepts besides the payload. Everything else is refused here, at the call.

The limits are those of PostgreSQL, HTTP headers and brokers' keys. They are checked in the caller's
frame: if the database detected them, the caller's transaction would be aborted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, TypeAlias, get_args
from uuid import UUID

from ..clock import clock
from ..errors import InvalidEvent, WrongArgument

MAX_EVENT_TYPE_CHARACTERS: Final = 200
MAX_KEY_BYTES: Final = 512
MAX_AHEAD: Final = timedelta(days=3653)
"""Ten years. Anything scheduled later is a mistake in the unit."""

ActorType: TypeAlias = Literal["user", "system", "api_key"]
ACTOR_TYPES: Final[tuple[str, ...]] = get_args(ActorType)

_EVENT_TYPE = re.compile(r"[A-Za-z0-9_]+(?:[.:/-][A-Za-z0-9_]+)*")
_HEADER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
IDEMPOTENCY_KEY: Final = "idempotency_key"
"""The header in which an event's own idempotency key is stored."""
_RESERVED_HEADERS: Final = {
    "version": "is set by the event type, not by hand",
    IDEMPOTENCY_KEY: "is set by the argument idempotency_key, not by hand",
}
_known_good: set[str] = set()


def check_event_type(name: str) -> None:
    """Check for words of letters, digits and ``_``, joined by single ``.``, ``:``, ``/`` or
    ``-``."""
    if not isinstance(name, str):
        raise WrongArgument(
            f"event type must be a str, not {type(name).__name__}", field="event_type"
        )
    if name in _known_good:
        return
    if len(name) > MAX_EVENT_TYPE_CHARACTERS:
        raise InvalidEvent(
            f"event type has {len(name):,} characters, at most {MAX_EVENT_TYPE_CHARACTERS}",
            field="event_type",
        )
    if not _EVENT_TYPE.fullmatch(name):
        raise InvalidEvent(
            f"event type {name!r}: words of ASCII letters, digits and _, joined by a single "
            '".", ":", "/" or "-", as in "order.placed"',
            field="event_type",
        )
    if name.startswith("outbox."):
        raise InvalidEvent(
            f"event type {name!r}: names that begin with outbox. are reserved for the outbox",
            field="event_type",
        )
    if len(_known_good) < 10_000:  # a program that generates names must not fill the memory
        _known_good.add(name)


def is_event_type(name: str) -> bool:
    """Whether *name* has the form of an event type: not only our producers write to the log."""
    return len(name) <= MAX_EVENT_TYPE_CHARACTERS and _EVENT_TYPE.fullmatch(name) is not None


def check_kinds(kind: type, *, or_none: bool = False, **values: object) -> None:
    """Raise :class:`WrongArgument` for the first of *values* that is not a *kind*."""
    for field, value in values.items():
        if isinstance(value, kind) or (value is None and or_none):
            continue
        raise WrongArgument(
            f"{field} must be a {kind.__name__}, not {type(value).__name__}", field=field
        )


def checked_text(field: str, value: str | None, *, most: int = MAX_KEY_BYTES) -> str | None:
    """Check a key, tenant or idempotency key: None, or printable text of 1 to *most* bytes."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise WrongArgument(f"{field} must be a str, not {type(value).__name__}", field=field)
    if not value:
        raise InvalidEvent(f"{field} is empty; leave it out for none", field=field)
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise InvalidEvent(
            f"{field} has a lone surrogate, which no database stores", field=field
        ) from None
    if size > most:
        raise InvalidEvent(f"{field} has {size:,} bytes, at most {most}", field=field)
    if _CONTROL.search(value):
        raise InvalidEvent(f"{field} has a control character", field=field)
    return str.__str__(value)  # for a subclass (an enum), the text itself, not what it prints as


def checked_event_id(event_id: UUID | str) -> UUID:
    if isinstance(event_id, UUID):
        return event_id
    if not isinstance(event_id, str):
        raise WrongArgument(
            f"event_id must be a UUID, not {type(event_id).__name__}", field="event_id"
        )
    try:
        return UUID(event_id)
    except ValueError:
        raise InvalidEvent("event_id is not a UUID", field="event_id") from None


def checked_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Check headers: names as in HTTP, values without control characters, so no relay can be
    tricked."""
    if not isinstance(headers, Mapping):
        raise WrongArgument(
            f"headers must be a mapping, not {type(headers).__name__}", field="headers"
        )
    try:
        pairs = list(headers.items())
    except Exception as error:
        raise InvalidEvent(
            f"reading the headers failed: {type(error).__name__}", field="headers"
        ) from error
    for name, value in pairs:
        _check_header(name, value)
    return {str.__str__(name): str.__str__(value) for name, value in pairs}


def is_header_text(value: str) -> bool:
    """Whether a stored value, written by anyone, can be passed on as a header."""
    return bool(value) and not _CONTROL.search(value)


def _check_header(name: str, value: str) -> None:
    if not isinstance(name, str) or not isinstance(value, str):
        raise WrongArgument(
            f"headers must be text, got {type(name).__name__}: {type(value).__name__}",
            field="headers",
        )
    if not _HEADER_NAME.fullmatch(name):
        raise InvalidEvent(
            f"header name {name[:40]!a}: ASCII letters, digits, '_', '.' and '-', at most 128",
            field="headers",
        )
    if name in _RESERVED_HEADERS:
        raise InvalidEvent(f"header {name!r} {_RESERVED_HEADERS[name]}", field="headers")
    if _CONTROL.search(value):
        raise InvalidEvent(f"header {name!r} has a control character", field="headers")


def checked_schedule(run_at: datetime | None, delay: timedelta | None) -> datetime | None:
    """Check the schedule: an aware time (returned in UTC) or a delay, not both, at most ten years
    ahead."""
    if run_at is not None and delay is not None:
        raise InvalidEvent("give run_at or delay, not both", field="run_at")
    if delay is not None:
        _check_delay(delay)
    return None if run_at is None else _checked_run_at(run_at)


def check_priority(priority: int) -> None:
    if type(priority) is not int:
        raise WrongArgument(
            f"priority must be an int, not {type(priority).__name__}", field="priority"
        )
    if not -32_768 <= priority <= 32_767:
        raise InvalidEvent("priority is outside -32,768 to 32,767", field="priority")


def is_refused_twice(on_duplicate: str, idempotency_key: str | None) -> bool:
    """Whether a duplicate is an error. Requesting that without a key is refused: it could never
    raise."""
    if on_duplicate == "skip":
        return False
    if on_duplicate != "raise":
        raise InvalidEvent(
            f'on_duplicate must be "skip" or "raise", not {on_duplicate!r:.40}',
            field="on_duplicate",
        )
    if idempotency_key is None:
        raise InvalidEvent(
            'on_duplicate="raise" needs an idempotency_key: without one nothing is a duplicate',
            field="on_duplicate",
        )
    return True


def _checked_run_at(run_at: datetime) -> datetime:
    if not isinstance(run_at, datetime):
        raise WrongArgument(
            f"run_at must be a datetime, not {type(run_at).__name__}", field="run_at"
        )
    try:
        # In UTC: PostgreSQL does not accept every offset that Python does.
        instant = None if run_at.utcoffset() is None else run_at.astimezone(UTC)
        # The local clock only guards against nonsense; the database decides when an event is due.
        ahead = None if instant is None else instant - clock.current()
    except Exception as error:  # a tzinfo is user code; an overflow at the ends of time
        raise InvalidEvent(
            f"run_at can't be understood: {type(error).__name__}", field="run_at"
        ) from error
    if instant is None or ahead is None:
        raise InvalidEvent(
            "run_at has no time zone: pass an aware datetime, or use delay", field="run_at"
        )
    if instant.year < 1970 or ahead > MAX_AHEAD:
        raise InvalidEvent(
            f"run_at {run_at} is more than ten years ahead, or before 1970", field="run_at"
        )
    return instant


def _check_delay(delay: timedelta) -> None:
    if not isinstance(delay, timedelta):
        raise WrongArgument(f"delay must be a timedelta, not {type(delay).__name__}", field="delay")
    if delay < timedelta(0):
        raise InvalidEvent(f"delay {delay} is negative", field="delay")
    if delay > MAX_AHEAD:
        raise InvalidEvent(f"delay {delay} is more than ten years", field="delay")
