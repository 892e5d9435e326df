"""Event types by name or pattern: ``*`` for any run of characters, and which of several applies."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from ..errors import ConfigError, UnknownEventType
from .types import event_types

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

T = TypeVar("T")

MAX_TYPE: Final = 200
MAX_REMEMBERED: Final = 10_000
"""Names whose answer is remembered: a program that generates names must not fill the memory."""
NOT: Final = "!"
"""Before a pattern of a listener: not these. No event type contains it."""
_PATTERN = re.compile("[^\\s\\x00-\\x1f%!\ud800-\udfff]+")


def type_pattern(where: str, one: object) -> str:
    """An event type's name, a pattern, or the name of a class that is an event type, as text.
    Raises :class:`ConfigError`, which says *where* it was given."""
    if isinstance(one, type):
        try:
            return event_types.of(one).name
        except UnknownEventType as error:
            raise ConfigError(f"{where}: {error}") from error
    if not isinstance(one, str) or not _PATTERN.fullmatch(one) or len(one) > MAX_TYPE:
        raise ConfigError(
            f'{where}: {one!r} is not an event type; use names such as "order.placed", and * for '
            "any run of characters"
        )
    # For a subclass (an enum), the text itself: a listener's fingerprint is computed from it.
    return str.__str__(one)


def wanted(on: Iterable[str]) -> list[str]:
    """The patterns of *on* without those that exclude."""
    return [one for one in on if not one.startswith(NOT)]


def excluded(on: Iterable[str]) -> list[str]:
    """What *on* excludes, without the mark."""
    return [one.removeprefix(NOT) for one in on if one.startswith(NOT)]


def matcher(on: tuple[str, ...]) -> Callable[[str], bool]:
    """A function that tells whether an event type is one of *on*."""
    unwanted = tuple(excluded(on))
    if unwanted:
        is_wanted, is_unwanted = matcher(tuple(wanted(on))), matcher(unwanted)
        return lambda event_type: is_wanted(event_type) and not is_unwanted(event_type)
    if "*" in on:
        return lambda _: True
    names = frozenset(one for one in on if "*" not in one)
    if len(names) == len(on):
        return names.__contains__
    matches = re.compile("|".join(_regular(one) for one in on if "*" in one), re.DOTALL).fullmatch
    return lambda event_type: event_type in names or matches(event_type) is not None


def may_meet(one: str, other: str) -> bool:
    """False if no event type can match both: a name that does not match, or patterns whose
    beginnings or ends differ."""
    if "*" not in one:
        return re.fullmatch(_regular(other), one, re.DOTALL) is not None
    if "*" not in other:
        return may_meet(other, one)
    beginnings = one.partition("*")[0], other.partition("*")[0]
    ends = one.rpartition("*")[2], other.rpartition("*")[2]
    return (
        beginnings[0].startswith(beginnings[1]) or beginnings[1].startswith(beginnings[0])
    ) and (ends[0].endswith(ends[1]) or ends[1].endswith(ends[0]))


def by_precedence(patterns: Iterable[str]) -> list[str]:
    """The one that applies first comes first: names, then the longest pattern; of two equally long,
    the one given first."""
    return sorted(patterns, key=lambda one: ("*" in one, -len(one)))


class MostSpecific(Generic[T]):
    """Values by event type: that of its name, otherwise that of the longest pattern it matches."""

    def __init__(self, values: dict[str, T]) -> None:
        self._values = values
        ordered = by_precedence(one for one in values if "*" in one)
        self._patterns = [(re.compile(_regular(one), re.DOTALL), values[one]) for one in ordered]
        self._found: dict[str, T | None] = {}

    def of(self, event_type: str) -> T | None:
        """None if there is none for it."""
        try:
            return self._found[event_type]
        except KeyError:
            found = self._look_up(event_type)
            if len(self._found) < MAX_REMEMBERED:
                self._found[event_type] = found
            return found

    def _look_up(self, event_type: str) -> T | None:
        if event_type in self._values and "*" not in event_type:
            return self._values[event_type]
        for pattern, value in self._patterns:
            if pattern.fullmatch(event_type):
                return value
        return None


def first_that_wants(
    several: Sequence[tuple[tuple[str, ...], Callable[[str], bool]]],
) -> Callable[[str], int | None]:
    """Which of *several*, each with its patterns and its ``matcher``, an event type is for: that of
    the pattern that applies first. Its place, or None."""
    by_pattern = {one: at for at, (on, _) in enumerate(several) for one in wanted(on)}
    ordered = [(by_pattern[one], matcher((one,))) for one in by_precedence(by_pattern)]

    @lru_cache(MAX_REMEMBERED)
    def place(event_type: str) -> int | None:
        for at, matches in ordered:
            if matches(event_type) and several[at][1](event_type):
                return at
        return None

    return place


def _regular(pattern: str) -> str:
    return re.escape(pattern).replace(r"\*", ".*")
