"""Kinds of work: how an event type is queued, retried and deduplicated."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ..errors import ConfigError, UnknownEventType
from ..event.types import event_types
from .checks import TEN_YEARS, check_span
from .retry import PRESETS, RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Iterable

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:\-]{0,99}")
_PATTERN = re.compile("[^\\s\\x00-\\x1f%\ud800-\udfff]{1,200}")
_MAX_REMEMBERED: Final = 10_000


@dataclass(frozen=True)
class Category:
    """A kind of work, and the settings that fit it."""

    name: str
    _: KW_ONLY
    queue: str = "default"
    """Name of the queue for its deliveries."""
    retry: RetryPolicy = field(default_factory=lambda: PRESETS["default"])
    """For listeners that set no ``retry=`` and have no events of another category."""
    key_lifetime: timedelta | None = None
    """How long an idempotency key of this kind prevents a duplicate; None: the outbox's
    ``idempotency_key_lifetime``."""

    def __post_init__(self) -> None:
        for what, value in (("name", self.name), ("queue", self.queue)):
            if not isinstance(value, str) or not _NAME.fullmatch(value):
                raise ConfigError(
                    f"the {what} of a category has up to 100 letters, digits and _ . : - ; "
                    f"got {value!r}"
                )
        if not isinstance(self.retry, RetryPolicy):
            raise ConfigError(
                f"retry of category {self.name!r} must be a RetryPolicy: {self.retry!r}"
            )
        what = f"key_lifetime of category {self.name!r}"
        check_span(what, self.key_lifetime, most=TEN_YEARS, or_none=True)


def _category(name: str, queue: str = "default", *, days: int | None = None) -> Category:
    lifetime = None if days is None else timedelta(days=days)
    return Category(name, queue=queue, retry=PRESETS[name], key_lifetime=lifetime)


CATEGORIES: Final[Mapping[str, Category]] = MappingProxyType(
    {
        each.name: each
        for each in (
            _category("notification", "notifications", days=7),
            _category("planning", "planning", days=30),
            _category("export", "exports", days=30),
            _category("import", "exports", days=30),
            _category("maintenance", "maintenance", days=7),
            _category("audit"),
            _category("default"),
        )
    }
)
"""The built-in categories, by name."""

DEFAULT: Final = CATEGORIES["default"]
Given: TypeAlias = Mapping[Any, str | Category]
"""Maps event types (names, patterns or classes) to categories or their names. Not ``str | type``: a
mapping's key type is invariant, and no dict of plain names would fit."""


class Categories:
    """Which category an event type has: by its exact name, otherwise by the longest matching
    pattern."""

    def __init__(self, given: Given | None) -> None:
        self._exact: dict[str, Category] = {}
        self._patterns: list[tuple[str, re.Pattern[str], Category]] = []
        if given is not None:
            self._take(given)
        # Longest first; of two equally long, the one given first.
        self._patterns.sort(key=lambda each: -len(each[0]))
        self._found: dict[str, Category] = {}

    def of(self, event_type: str) -> Category:
        """The category of *event_type*; ``default`` if none was configured for it."""
        found = self._found.get(event_type)
        if found is None:
            found = self._look_up(event_type)
            if len(self._found) < _MAX_REMEMBERED:
                self._found[event_type] = found
        return found

    def common(self, on: Iterable[str]) -> Category | None:
        """The category shared by all event types that *on* matches (names and patterns); None if
        they may differ, or if no categories were configured."""
        if not self._exact and not self._patterns:
            return None
        found = {category for one in on for category in self._possible(one)}
        return found.pop() if len(found) == 1 else None

    def _look_up(self, event_type: str) -> Category:
        if event_type in self._exact:
            return self._exact[event_type]
        for _, pattern, category in self._patterns:
            if pattern.fullmatch(event_type):
                return category
        return DEFAULT

    def _possible(self, one: str) -> set[Category]:
        """Every category that an event type matching *one* may have; possibly a few more."""
        if "*" not in one:
            return {self.of(one)}
        wanted = _compiled(one)
        found = {category for name, category in self._exact.items() if wanted.fullmatch(name)}
        for text, pattern, category in self._patterns:
            if _may_meet(one, text):
                found.add(category)
            # It matches everything *one* matches (only a * matches a *): shorter patterns never
            # apply.
            if pattern.fullmatch(one):
                return found
        return found | {DEFAULT}

    def _take(self, given: Given) -> None:
        if not isinstance(given, Mapping):
            raise ConfigError(f"categories must be a mapping, not {given!r}")
        by_name: dict[str, Category] = {}
        for key, value in given.items():
            event_type = _event_type(key)
            category = _named(value)
            if by_name.setdefault(category.name, category) != category:
                raise ConfigError(f"categories has two different ones named {category.name!r}")
            if "*" in event_type:
                self._patterns.append((event_type, _compiled(event_type), category))
            else:
                self._exact[event_type] = category


def _event_type(key: object) -> str:
    if isinstance(key, type):
        try:
            return event_types.of(key).name
        except UnknownEventType as error:
            raise ConfigError(f"categories: {error}") from error
    if not isinstance(key, str) or not _PATTERN.fullmatch(key):
        raise ConfigError(
            f'categories: {key!r} is not an event type; use names such as "order.placed", and * '
            "for any run of characters"
        )
    return str.__str__(key)


def _named(value: object) -> Category:
    if isinstance(value, Category):
        return value
    if isinstance(value, str) and value in CATEGORIES:
        return CATEGORIES[value]
    raise ConfigError(f"a category is one of {', '.join(CATEGORIES)}, or a Category; got {value!r}")


def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(re.escape(pattern).replace(r"\*", ".*"), re.DOTALL)


def _may_meet(one: str, other: str) -> bool:
    """False if no event type can match both patterns: their beginnings or ends differ."""
    beginnings = one.partition("*")[0], other.partition("*")[0]
    ends = one.rpartition("*")[2], other.rpartition("*")[2]
    return (
        beginnings[0].startswith(beginnings[1]) or beginnings[1].startswith(beginnings[0])
    ) and (ends[0].endswith(ends[1]) or ends[1].endswith(ends[0]))
