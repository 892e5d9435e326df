"""What ``add_event`` accepts beside the payload. Everything else is refused here, at the call.

The limits are those of PostgreSQL, of HTTP headers and of brokers' keys, checked in the caller's
frame: found out by the database, they would abort the caller's transaction.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from .errors import InvalidEvent, WrongArgument

MAX_EVENT_TYPE_CHARACTERS: Final = 200
MAX_KEY_BYTES: Final = 512
MAX_AHEAD: Final = timedelta(days=3653)
"""Ten years. What is scheduled later than that is a mistake in a unit."""

_EVENT_TYPE = re.compile(r"[A-Za-z0-9_]+(?:[.:/-][A-Za-z0-9_]+)*")
_HEADER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_RESERVED_HEADERS: Final = frozenset({"version"})
_known_good: set[str] = set()


def check_event_type(name: str) -> None:
    """Words of letters, digits and ``_``, joined by single ``.``, ``:``, ``/`` or ``-``."""
    if name in _known_good:
        return
    if not isinstance(name, str):
        raise WrongArgument(
            f"event type must be a str, not {type(name).__name__}", field="event_type"
        )
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
    if len(_known_good) < 10_000:  # a program that makes names up must not fill the memory
        _known_good.add(name)


def check_text(field: str, value: str | None) -> None:
    """A key, tenant or idempotency key: None, or printable text of 1 to 512 bytes."""
    if value is None:
        return
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
    if size > MAX_KEY_BYTES:
        raise InvalidEvent(f"{field} has {size:,} bytes, at most {MAX_KEY_BYTES}", field=field)
    if _CONTROL.search(value):
        raise InvalidEvent(f"{field} has a control character", field=field)


def check_headers(headers: Mapping[str, str]) -> None:
    """Names as in HTTP, values text without control characters: no relay can be tricked."""
    if not isinstance(headers, Mapping):
        raise WrongArgument(
            f"headers must be a mapping, not {type(headers).__name__}", field="headers"
        )
    for name, value in headers.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise WrongArgument(
                f"headers must be text, got {type(name).__name__}: {type(value).__name__}",
                field="headers",
            )
        if not _HEADER_NAME.fullmatch(name):
            raise InvalidEvent(
                f"header name {name!r}: ASCII letters, digits, '_', '.' and '-', at most 128",
                field="headers",
            )
        if name in _RESERVED_HEADERS:
            raise InvalidEvent(
                f"header {name!r} is set by the event type, not by hand", field="headers"
            )
        if _CONTROL.search(value):
            raise InvalidEvent(f"header {name!r} has a control character", field="headers")


def check_schedule(run_at: datetime | None, delay: timedelta | None) -> None:
    """An aware time or a span ahead, not both, at most ten years away."""
    if run_at is not None and delay is not None:
        raise InvalidEvent("give run_at or delay, not both", field="run_at")
    if run_at is not None:
        _check_run_at(run_at)
    if delay is not None:
        _check_delay(delay)


def check_priority(priority: int) -> None:
    if type(priority) is not int:
        raise WrongArgument(
            f"priority must be an int, not {type(priority).__name__}", field="priority"
        )
    if not -32_768 <= priority <= 32_767:
        raise InvalidEvent(f"priority {priority} is outside of -32,768 to 32,767", field="priority")


def _check_run_at(run_at: datetime) -> None:
    if not isinstance(run_at, datetime):
        raise WrongArgument(
            f"run_at must be a datetime, not {type(run_at).__name__}", field="run_at"
        )
    if run_at.utcoffset() is None:
        raise InvalidEvent(
            "run_at has no time zone: pass an aware datetime, or use delay", field="run_at"
        )
    # The local clock only guards against nonsense; when the event is due, the database decides.
    try:
        too_far = run_at - datetime.now(UTC) > MAX_AHEAD
    except OverflowError:
        too_far = True
    if too_far or run_at.year < 1970:
        raise InvalidEvent(
            f"run_at {run_at} is more than ten years ahead, or before 1970", field="run_at"
        )


def _check_delay(delay: timedelta) -> None:
    if not isinstance(delay, timedelta):
        raise WrongArgument(f"delay must be a timedelta, not {type(delay).__name__}", field="delay")
    if delay < timedelta(0):
        raise InvalidEvent(f"delay {delay} is negative", field="delay")
    if delay > MAX_AHEAD:
        raise InvalidEvent(f"delay {delay} is more than ten years", field="delay")
