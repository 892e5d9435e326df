"""How long an error asks us to wait: ``Retry-After`` of an HTTP response, or its own
``retry_after``.

Detected by shape, so that no HTTP library is imported: errors of httpx and requests have a
``response``; those of aiohttp and urllib have the response's fields themselves.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any, Final

LONGEST: Final = timedelta(days=1)
"""Upper limit of a wait, whatever the server asks for: it may be mistaken or malicious."""

_BUSY = (429, 503)
_SECONDS = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_MAX_TEXT = 100
"""A date has 29 characters."""


def retry_after(error: BaseException, *, now: datetime) -> timedelta | None:
    """The wait that *error* asks for, from zero to ``LONGEST``; None if it asks for none.

    A value that can't be parsed, or lies in the past, counts as none. *now* is for a header that
    gives a date. Never raises.
    """
    for ask in (_of_its_own, _of_its_answer, _of_an_answer):
        try:
            span = _span(ask(error), now)
        except BaseException:  # noqa: BLE001 - properties and values may be anything, including nan
            span = None
        if span is not None:
            return span
    return None


def _of_its_own(error: BaseException) -> Any:
    return getattr(error, "retry_after", None)


def _of_its_answer(error: BaseException) -> Any:
    # Not "or": a response of requests is false when it is an error.
    return _of_an_answer(getattr(error, "response", None))


def _of_an_answer(answer: object) -> Any:
    status = getattr(answer, "status_code", None)
    if status is None:
        status = getattr(answer, "status", None)
    if status not in _BUSY:
        return None
    headers: Any = getattr(answer, "headers", None)
    value = headers.get("Retry-After")
    return headers.get("retry-after") if value is None else value  # a plain dict knows one of them


def _span(value: Any, now: datetime) -> timedelta | None:
    if isinstance(value, bytes):
        value = value.decode("ascii")
    if isinstance(value, str):
        value = _parsed(value, now)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        value = timedelta(seconds=min(value, LONGEST.total_seconds()))
    if not isinstance(value, timedelta) or value < timedelta(0):
        return None
    return min(value, LONGEST)


def _parsed(text: str, now: datetime) -> float | timedelta | None:
    """Parse seconds, or a date in one of HTTP's three formats; raises for anything else."""
    if len(text) > _MAX_TEXT:
        return None
    text = text.strip()
    if _SECONDS.fullmatch(text):
        return float(text)
    then = parsedate_to_datetime(text)
    return (then if then.tzinfo is not None else then.replace(tzinfo=UTC)) - now
