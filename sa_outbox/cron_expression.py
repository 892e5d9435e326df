"""Reading a cron expression: five fields, or a shorthand for them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from .errors import ConfigError

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_LONGEST = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_PART = re.compile(r"(?:\*|([0-9]+|[a-z]+)(?:-([0-9]+|[a-z]+))?)(?:/([0-9]+))?")
SHORTHANDS: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
}


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    low: int
    high: int
    names: dict[str, int] = field(default_factory=dict)

    @property
    def allowed(self) -> str:
        named = f" or {', '.join(self.names)}" if self.names else ""
        last = self.high - 1
        return (
            f"{self.low} to {self.high}{named}; *, lists ({self.low},{last}), ranges "
            f"({self.low}-{last}) and steps (*/2, {self.low}-{last}/2)"
        )


_FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of month", 1, 31),
    _Field("month", 1, 12, {name: number for number, name in enumerate(_MONTHS, 1)}),
    _Field("day of week", 0, 7, {name: number for number, name in enumerate(_WEEKDAYS)}),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fields:
    """What an expression allows."""

    minutes: list[int]
    hours: list[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    """From 0, which is Sunday, to 6."""
    either: bool
    """Day of month and day of week are both restricted: a date needs to fit one of them."""


def parse(expression: str) -> Fields:
    """Read an *expression*; raise :class:`ConfigError` for one that says nothing, or never comes
    true."""
    texts = _split(expression)
    minutes, hours, days, months, weekdays = (
        _values(each, text, expression) for each, text in zip(_FIELDS, texts, strict=True)
    )
    either = not texts[2].startswith("*") and not texts[4].startswith("*")
    if not either and min(days) > max(_LONGEST[month - 1] for month in months):
        raise ConfigError(
            f"cron {expression!r} never comes true: no month in {texts[3]!r} has a day of month "
            f"in {texts[2]!r}"
        )
    return Fields(
        minutes=minutes,
        hours=hours,
        days=frozenset(days),
        months=frozenset(months),
        weekdays=frozenset(each % 7 for each in weekdays),
        either=either,
    )


def _split(expression: str) -> list[str]:
    if not isinstance(expression, str):
        raise ConfigError(f"a cron expression must be a str, not {type(expression).__name__}")
    words = expression.lower().split()
    if len(words) == 1 and words[0].startswith("@"):
        if words[0] not in SHORTHANDS:
            raise ConfigError(f"cron {expression!r}: there are {', '.join(SHORTHANDS)}")
        words = SHORTHANDS[words[0]].split()
    if len(words) != len(_FIELDS):
        raise ConfigError(
            f"cron {expression!r} has {len(words)} fields; it needs five: minute, hour, day of "
            f"month, month, day of week, as in '0 3 * * *', or one of {', '.join(SHORTHANDS)}"
        )
    return words


def _values(each: _Field, text: str, expression: str) -> list[int]:
    found: set[int] = set()
    for part in text.split(","):
        try:
            found.update(_range(each, part))
        except ValueError as error:
            raise ConfigError(
                f"cron {expression!r}, {each.name} {part!r}: {error}. Allowed: {each.allowed}"
            ) from None
    return sorted(found)


def _range(each: _Field, part: str) -> range:
    matched = _PART.fullmatch(part)
    if matched is None:
        raise ValueError("not understood")
    begin, end, step = matched.groups()
    if begin is None:
        low, high = each.low, each.high - (each.high == 7)  # 7 is Sunday, and so is 0
    else:
        low = high = _number(each, begin)
        if end is not None:
            high = _number(each, end)
            if each.high == 7 and high == 0 < low:
                high = 7  # sat-sun
    if low > high:
        raise ValueError("a range goes from the lower to the higher")
    if step is None:
        return range(low, high + 1)
    if begin is not None and end is None:
        raise ValueError("a step needs * or a range before it")
    if not 1 <= int(step) <= each.high:
        raise ValueError(f"a step is 1 to {each.high}, and begins again with each new round")
    return range(low, high + 1, int(step))


def _number(each: _Field, text: str) -> int:
    if text in each.names:
        return each.names[text]
    if not text.isdigit():
        raise ValueError("no such name" if each.names else "not a number")
    number = int(text)
    if not each.low <= number <= each.high:
        raise ValueError(f"{number} is outside")
    return number
