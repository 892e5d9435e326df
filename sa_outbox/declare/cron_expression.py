"""Reading a cron expression: five fields, or a shorthand for them.

cronsim reads it. Here is what we refuse beyond that, and how a mistake is explained.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final, NamedTuple

from cronsim import CronSim, CronSimError

from ..errors import ConfigError

SHORTHANDS: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
}
_UP_TO_SUNDAY: Final = re.compile(r"([1-6]|mon|tue|wed|thu|fri|sat)-(?:0|sun)")
_ANY_DAY: Final = datetime(2000, 1, 1)  # noqa: DTZ001 -- of a calendar, in no time zone


class _Field(NamedTuple):
    name: str
    largest: int
    values: str
    read_as: str
    """The attribute of a ``CronSim``."""


_FIELDS: Final = (
    _Field("minute", 59, "0 to 59", "minutes"),
    _Field("hour", 23, "0 to 23", "hours"),
    _Field("day of month", 31, "1 to 31, L (the last day), LW (the last weekday)", "days"),
    _Field("month", 12, "1 to 12 or jan to dec", "months"),
    _Field(
        "day of week", 7, "0 to 7 or sun to sat, fri#2 (the second one), 5L (the last)", "weekdays"
    ),
)


class Expression(NamedTuple):
    """An expression that says something, and comes true."""

    text: str
    """Five fields, for cronsim."""
    every_hour: bool


def parse(expression: str) -> Expression:
    """Read an *expression*; raise :class:`ConfigError` for one that says nothing, or never comes
    true."""
    words = _split(expression)
    text = " ".join(
        ",".join(_plain(expression, number, part) for part in word.split(","))
        for number, word in enumerate(words)
    )
    try:
        read = CronSim(text, _ANY_DAY)
        next(read)  # cronsim looks for 50 years, and a leap day is any day of the week within 40
    except (CronSimError, StopIteration):
        _, _, day, month, weekday = words
        raise ConfigError(
            f"cron {expression!r} never comes true: no date fits day of month {day!r}, month "
            f"{month!r} and day of week {weekday!r}"
        ) from None
    return Expression(text, every_hour=len(read.hours) == 24)


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


def _plain(expression: str, number: int, part: str) -> str:
    """One *part* of a list, in field *number*, without what cronsim reads differently."""
    before, slash, step = part.partition("/")
    if number == 4 and _UP_TO_SUNDAY.fullmatch(before):
        before = before.partition("-")[0] + "-7"
    try:
        values = _values(number, before)
        if not slash:
            return before
        every = _step(before, step, _FIELDS[number].largest)
    except ValueError as error:
        field = _FIELDS[number]
        raise ConfigError(
            f"cron {expression!r}, {field.name} {part!r}: {error}. Allowed: {field.values}; *, "
            "lists (1,3), ranges from the lower to the higher (1-5) and steps (*/2, 1-5/2)"
        ) from None
    # Not as a range: cronsim reads 5-5/2 as if it were 5-59/2.
    return part if before == "*" else ",".join(map(str, values[::every]))


def _values(number: int, text: str) -> list[int]:
    words = ["*"] * len(_FIELDS)
    words[number] = text
    try:
        read = CronSim(" ".join(words), _ANY_DAY)
    except (CronSimError, ValueError):  # the latter for a number of thousands of digits
        raise ValueError("not understood") from None
    return sorted(getattr(read, _FIELDS[number].read_as))


def _step(before: str, step: str, largest: int) -> int:
    if before != "*" and "-" not in before:  # crons disagree about 5/15
        raise ValueError("a step needs * or a range before it")
    if not re.fullmatch("[0-9]{1,2}", step) or not 1 <= int(step) <= largest:
        raise ValueError(f"a step is 1 to {largest}, and restarts with each new round")
    return int(step)
