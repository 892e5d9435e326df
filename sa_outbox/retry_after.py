"""How long an error asks to wait: ``Retry-After`` of an HTTP answer, or ``retry_after`` of its own.

Read by what it looks like, so that no HTTP library is imported: httpx and requests give their
errors a ``response``, those of aiohttp and urllib have the answer's fields themselves.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any, Final

LONGEST: Final = timedelta(days=1)
"""Whatever the other side asks for, no wait is longer: it may be mistaken, or not mean well."""

_BUSY = (429, 503)
_SECONDS = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_MAX_TEXT = 100
"""A date has 29 characters."""


def retry_after(error: BaseException, *, now: datetime) -> timedelta | None:
    """The wait that *error* asks for, from nothing to ``LONGEST``; None if it asks for none.

    What can't be understood, or lies in the past, asks for none. *now* is for a header that
    gives a date. Never raises.
    """
    for ask in (_of_its_own, _of_its_answer, _of_an_answer):
        try:
            span = _span(ask(error), now)
        except BaseException:  # noqa: BLE001 - properties and values are anybody's, nan too
            span = None
        if span is not None:
            return span
    return None


def _of_its_own(error: BaseException) -> Any:
    return getattr(error, "retry_after", None)


def _of_its_answer(error: BaseException) -> Any:
    # Not "or": an answer of requests is false when it is an error.
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
    """Of seconds, or of a date in one of the three forms of HTTP; raises for anything else."""
    if len(text) > _MAX_TEXT:
        return None
    text = text.strip()
    if _SECONDS.fullmatch(text):
        return float(text)
    then = parsedate_to_datetime(text)
    return (then if then.tzinfo is not None else then.replace(tzinfo=UTC)) - now
