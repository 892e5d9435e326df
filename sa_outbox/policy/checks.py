"""Checks that settings, policies and declarations share, and the words for a mistake."""

from __future__ import annotations

from datetime import timedelta
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from ..errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

ONE_DAY: Final = timedelta(days=1)
TEN_YEARS: Final = timedelta(days=3653)
MAX_NAMES: Final = 20
"""How many names a message lists."""
_WORDS: Final = {None: "", ONE_DAY: " and up to a day", TEN_YEARS: " and up to ten years"}


def check_span(
    what: str, span: object, *, most: timedelta | None = None, or_none: bool = False
) -> None:
    """Raise :class:`ConfigError` unless *span* is a timedelta above zero and up to *most*
    (``ONE_DAY``, ``TEN_YEARS`` or no limit)."""
    if or_none and span is None:
        return
    if isinstance(span, timedelta) and timedelta(0) < span <= (most or timedelta.max):
        return
    none = ", or None" if or_none else ""
    raise ConfigError(f"{what} must be a timedelta above zero{_WORDS[most]}{none}, not {span!r}")


def known_instead(name: str, names: Iterable[str]) -> str:
    """``; did you mean 'outbox'?``, or which *names* there are."""
    known = sorted(names)
    if near := did_you_mean(name, known):
        return near
    more = f" and {len(known) - MAX_NAMES} more" if len(known) > MAX_NAMES else ""
    return f"; there are: {', '.join(known[:MAX_NAMES])}{more}" if known else "; none is known"


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """``; did you mean 'outbox'?`` if one of *names* is near, else nothing."""
    near = get_close_matches(name, list(names), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
