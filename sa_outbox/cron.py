"""When a recurring event is due: cron expressions, in a time zone. Arithmetic only.

Where a clock is put forward or back, two rules hold. An expression whose hours allow every hour
(``*/15 * * * *``) goes by the clock on the wall as it is: it ticks whenever that shows a time that
fits, through an hour that comes twice both times, and has nothing to make up for in an hour that
does not exist. An expression with certain hours (``30 2 * * *``) means one tick for each of its
times: in an hour that comes twice the first, and a time that does not exist is the first moment
after the jump, which is one tick for however many times were jumped over.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from calendar import monthrange
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from difflib import get_close_matches
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias, get_args
from zoneinfo import ZoneInfo, available_timezones

from .cron_expression import parse
from .errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

Missed: TypeAlias = Literal["one", "skip", "all"]
POLICIES: tuple[Missed, ...] = get_args(Missed)
MOST_TICKS: Final = 1000
"""Most ticks that ``missed="all"`` makes up for at once, and most that are counted as missed: a
cron of every minute may have been down for years."""
ON_TIME: Final = timedelta(minutes=1)
"""A tick that is seen later than this was missed."""

# Not the last days there are: in another time zone they may be beyond what a datetime holds.
_FIRST_DAY, _LAST_DAY = date.min.toordinal() + 2, date.max.toordinal() - 2


class Tick(NamedTuple):
    """A tick that gets an event."""

    at: datetime
    missed: int
    """How many ticks before this one, since the last event, get none; 1000 stands for more too."""


def due_ticks(cron: Cron, last_tick: datetime, now: datetime, missed: Missed) -> list[Tick]:
    """The ticks after *last_tick*, up to *now*, that get an event, oldest first.

    None when the clock was set back to before *last_tick*: a tick never comes twice. With
    ``"skip"`` none either while the latest one is late; the event of the next says how many.
    """
    counted = 2 * MOST_TICKS if missed == "all" else MOST_TICKS + 1
    found = cron.latest(last_tick, now, counted)
    if not found or (missed == "skip" and now - found[-1] > ON_TIME):
        return []
    rest = len(found) - 1
    if missed != "all":
        return [Tick(found[-1], rest)]
    dropped = max(0, len(found) - MOST_TICKS)
    first, *others = found[dropped:]
    return [Tick(first, dropped), *(Tick(each, 0) for each in others)]


class Cron:
    """The ticks of a cron *expression* (minute, hour, day of month, month, day of week), read in
    *time_zone*. Raises :class:`ConfigError` for one that says nothing, or never comes true.

    Days are as in Vixie cron: a date fits when day of month and day of week both do; when neither
    begins with ``*``, one of the two is enough.
    """

    def __init__(self, expression: str, time_zone: str) -> None:
        self.expression = expression
        self.time_zone = time_zone
        self._zone = _zone(time_zone)
        self._fields = parse(expression)
        self._times = [
            time(hour, minute) for hour in self._fields.hours for minute in self._fields.minutes
        ]
        self._every_hour = len(self._fields.hours) == 24
        # A few days, each asked for again and again: one of every minute has 1,440 ticks.
        self._ticks_on = lru_cache(maxsize=4)(self._find_ticks_on)

    def next_after(self, moment: datetime) -> datetime | None:
        """The first tick after *moment*, in UTC; None when there is none up to the year 9999."""
        found: list[datetime] = []
        last = _LAST_DAY
        for day in self._days_from(self._day_of(moment) - 1):
            # A clock that goes back at midnight lets two days overlap: one more is looked at.
            if day.toordinal() > last:
                break
            ticks = self._ticks_on(day)
            number = bisect_right(ticks, moment)
            if number < len(ticks):
                found.append(ticks[number])
                last = min(last, day.toordinal() + 1)
        return min(found, default=None)

    def latest(self, after: datetime, until: datetime, most: int) -> list[datetime]:
        """The last *most* ticks after *after* and up to *until*, in UTC, oldest first."""
        found: set[datetime] = set()
        first = self._day_of(after) - 1
        if after >= until:
            return []
        for day in self._days_back_from(self._day_of(until) + 1):
            if day.toordinal() < first:
                break
            ticks = self._ticks_on(day)
            found.update(ticks[bisect_right(ticks, after) : bisect_right(ticks, until)])
            if len(found) >= most:
                first = max(first, day.toordinal() - 1)
        return sorted(found)[-most:]

    def __repr__(self) -> str:
        return f"Cron({self.expression!r}, {self.time_zone!r})"

    def _day_of(self, moment: datetime) -> int:
        try:
            return moment.astimezone(self._zone).toordinal()
        except OverflowError:  # at the ends of time
            return moment.toordinal()

    def _fits(self, day: date) -> bool:
        fields = self._fields
        of_month, of_week = day.day in fields.days, day.isoweekday() % 7 in fields.weekdays
        return (of_month or of_week) if fields.either else (of_month and of_week)

    def _days_from(self, ordinal: int) -> Iterator[date]:
        ordinal = max(ordinal, _FIRST_DAY)
        while ordinal <= _LAST_DAY:
            day = date.fromordinal(ordinal)
            if day.month not in self._fields.months:
                ordinal += monthrange(day.year, day.month)[1] - day.day
            elif self._fits(day):
                yield day
            ordinal += 1

    def _days_back_from(self, ordinal: int) -> Iterator[date]:
        ordinal = min(ordinal, _LAST_DAY)
        while ordinal >= _FIRST_DAY:
            day = date.fromordinal(ordinal)
            if day.month not in self._fields.months:
                ordinal -= day.day - 1
            elif self._fits(day):
                yield day
            ordinal -= 1

    def _find_ticks_on(self, day: date) -> tuple[datetime, ...]:
        """The ticks of one date of the calendar, which may reach into another one, in order."""
        found: set[datetime] = set()
        for each in self._times:
            wall = datetime.combine(day, each, self._zone)
            first = wall.astimezone(UTC)
            # With one tzinfo on both sides it is the time on the wall that is compared.
            if first.astimezone(self._zone) == wall:
                found.add(first)
                if self._every_hour:
                    found.add(wall.replace(fold=1).astimezone(UTC))
            elif not self._every_hour:
                found.add(_end_of_gap(wall, self._zone))
        return tuple(sorted(found))


def _end_of_gap(wall: datetime, zone: tzinfo) -> datetime:
    """The moment of the jump over *wall*, a time that no clock showed."""
    before, after = wall.replace(fold=1).astimezone(UTC), wall.astimezone(UTC)
    ahead = after.astimezone(zone).utcoffset()
    seconds = range(round((after - before).total_seconds()))
    return before + timedelta(
        seconds=bisect_left(
            seconds,
            x=True,
            key=lambda passed: (
                (before + timedelta(seconds=passed)).astimezone(zone).utcoffset() == ahead
            ),
        )
    )


def _zone(name: str) -> tzinfo:
    if not isinstance(name, str):
        raise ConfigError(f'time_zone must be a name such as "UTC", not {type(name).__name__}')
    if name == "UTC":  # is there without a database of time zones, too
        return UTC
    with suppress(KeyError, ValueError, OSError):
        if name != "localtime":  # which is another one on each machine
            return ZoneInfo(name)
    known = sorted(available_timezones() - {"localtime"})
    near = ", ".join(get_close_matches(name, known, n=3, cutoff=0.7))
    hint = f"did you mean {near}?" if near else 'names are such as "Europe/Berlin" or "UTC"'
    if not known:
        hint = "none are installed here: pip install tzdata"
    raise ConfigError(f"there is no time zone {name!r}; {hint}")
