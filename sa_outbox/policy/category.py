"""Kinds of work: how an event type is queued, retried and deduplicated."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from datetime import timedelta
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from ..errors import ConfigError
from ..event.type_patterns import NOT, MostSpecific, by_precedence, may_meet, type_pattern
from .checks import TEN_YEARS, check_span
from .retry import PRESETS, RetryPolicy

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:\-]{0,99}")


@dataclass(frozen=True)
class Category:
    """A kind of work, and the settings that fit it."""

    name: str
    _: KW_ONLY
    queue: str = "default"
    """Name of the queue that gets its events: ``outbox.queue``."""
    retry: RetryPolicy = field(default_factory=lambda: PRESETS["default"])
    """For its events, in listeners that set no ``retry=``."""
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
        self._given = {} if given is None else _checked(given)
        self._by_type = MostSpecific(self._given)

    def of(self, event_type: str) -> Category:
        """The category of *event_type*; ``default`` if none was configured for it."""
        return self._by_type.of(event_type) or DEFAULT

    def types_of(self, queue: str) -> tuple[str, ...]:
        """The event types whose category has this *queue*, as a listener's ``on``; none if there is
        no such category. Raises :class:`ConfigError` if patterns can't say it."""
        given = {**self._given, "*": self._given.get("*", DEFAULT)}
        ordered = by_precedence(given)
        ours = [one for one in ordered if given[one].queue == queue]
        others: dict[str, None] = {}
        for one in ours:
            # Those that apply before it.
            for other in ordered[: ordered.index(one)]:
                if given[other].queue != queue and may_meet(one, other):
                    others[other] = None
        for other in others:
            for one in ordered[: ordered.index(other)]:
                if one in ours and may_meet(one, other):
                    raise ConfigError(
                        f"categories: {one!r} has the queue {queue!r} and is one of {other!r}, "
                        "which has another and is itself an exception: name the event types of "
                        "the queue with on()"
                    )
        return (*ours, *(NOT + other for other in others))


def _checked(given: Given) -> dict[str, Category]:
    if not isinstance(given, Mapping):
        raise ConfigError(f"categories must be a mapping, not {given!r}")
    by_type: dict[str, Category] = {}
    by_name: dict[str, Category] = {}
    for key, value in given.items():
        category = _named(value)
        if by_name.setdefault(category.name, category) != category:
            raise ConfigError(f"categories has two different ones named {category.name!r}")
        by_type[type_pattern("categories", key)] = category
    return by_type


def _named(value: object) -> Category:
    if isinstance(value, Category):
        return value
    if isinstance(value, str) and value in CATEGORIES:
        return CATEGORIES[value]
    raise ConfigError(f"a category is one of {', '.join(CATEGORIES)}, or a Category; got {value!r}")
