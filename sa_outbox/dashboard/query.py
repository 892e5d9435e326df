"""A request's parameters, parsed and checked: an invalid filter is refused, never tried."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final
from uuid import UUID

from starlette.exceptions import HTTPException

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LONGEST_TEXT: Final = 500
MAX_POSITION: Final = 2**63 - 1


def typed(given: Mapping[str, str], name: str, *, longest: int = LONGEST_TEXT) -> str | None:
    """The text that was entered; None if empty."""
    value = given.get(name, "").strip()
    if len(value) > longest:
        raise HTTPException(400, f"{name}: at most {longest} characters")
    if "\x00" in value or any("\ud800" <= each <= "\udfff" for each in value):
        raise HTTPException(400, f"{name}: contains something that is not text")
    return value or None


def choice(given: Mapping[str, str], name: str, choices: Sequence[str]) -> str | None:
    value = typed(given, name)
    if value is not None and value not in choices:
        raise HTTPException(400, f"{name} is one of {', '.join(choices)}")
    return value


def number(given: Mapping[str, str], name: str) -> int | None:
    value = typed(given, name)
    if value is None:
        return None
    if not (value.isascii() and value.isdigit()) or int(value[:20]) > MAX_POSITION:
        raise HTTPException(400, f"{name} is a whole number")
    return int(value)


def event_id(given: Mapping[str, str], name: str) -> UUID | None:
    value = typed(given, name)
    if value is None:
        return None
    try:
        return UUID(value)
    except ValueError as error:
        raise HTTPException(400, f"{name} is an event id, as in {UUID(int=0)}") from error


def moment(given: Mapping[str, str], name: str) -> datetime | None:
    """A time, in UTC unless it names a zone."""
    value = typed(given, name)
    if value is None:
        return None
    try:
        found = datetime.fromisoformat(value)
        aware = found.replace(tzinfo=UTC) if found.tzinfo is None else found
        return aware.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise HTTPException(400, f"{name} is a time, as in 2026-01-31T08:00") from error
