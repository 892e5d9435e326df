"""When a recurring event is due: cron expressions in a time zone. Arithmetic only.

cronsim walks through the times of an expression as a calendar has them, without a time zone. What
a time zone makes of each is decided here. Where a clock is put forward or back, two rules hold. An
expression whose hours allow every hour (``*/15 * * * *``) goes by the clock on the wall as it is:
it ticks whenever that shows a time that fits, through an hour that comes twice both times, and has
nothing to make up for in an hour that does not exist. An expression with certain hours
(``30 2 * * *``) means one tick for each of its times: in an hour that comes twice the first, and a
time that does not exist is the first moment after the jump, which is one tick for however many
times were jumped over.

cronsim has rules of its own for that, Debian's, which we do not use: there a ``*`` at the beginning
of the minutes or hours decides (``*/10 2 * * *`` is left out in spring, and comes twice in autumn).
"""

from __future__ import annotations

from bisect import bisect_left
from contextlib import suppress
from datetime import UTC, datetime, timedelta, tzinfo
from heapq import merge
from itertools import groupby
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias, get_args
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim

from ..errors import ConfigError
from ..policy.checks import did_you_mean
from .cron_expression import parse

if TYPE_CHECKING:
    from collections.abc import Iterator

Missed: TypeAlias = Literal["one", "skip", "all"]
POLICIES: tuple[Missed, ...] = get_args(Missed)
MAX_TICKS: Final = 1000
"""Maximum number of ticks that ``missed="all"`` makes up for at once, and that are counted as
missed: an every-minute cron may have been down for years."""
ON_TIME: Final = timedelta(minutes=1)
"""A tick seen later than this counts as missed."""

_SECOND = timedelta(seconds=1)


class Tick(NamedTuple):
    """A tick that gets an event."""

    at: datetime
    missed: int
    """How many earlier ticks since the last event get none; 1000 means 1000 or more."""


def due_ticks(cron: Cron, last_tick: datetime, now: datetime, missed: Missed) -> list[Tick]:
    """The ticks after *last_tick*, up to *now*, that get an event, oldest first.

    Empty when the clock was set back to before *last_tick*: a tick never comes twice. With
    ``"skip"`` also empty while the latest tick is late; the next event tells how many were missed.
    """
    counted = 2 * MAX_TICKS if missed == "all" else MAX_TICKS + 1
    found = cron.latest(last_tick, now, counted)
    if not found or (missed == "skip" and now - found[-1] > ON_TIME):
        return []
    rest = len(found) - 1
    if missed != "all":
        return [Tick(found[-1], rest)]
    dropped = max(0, len(found) - MAX_TICKS)
    first, *others = found[dropped:]
    return [Tick(first, dropped), *(Tick(each, 0) for each in others)]


class Cron:
    """The ticks of a cron *expression* (minute, hour, day of month, month, day of week), read in
    *time_zone*. Raises :class:`ConfigError` for an invalid expression, or one that never matches.

    Days work as in Vixie cron: a date matches when both day of month and day of week do; when
    neither begins with ``*``, one of the two is enough.
    """

    def __init__(self, expression: str, time_zone: str) -> None:
        self.expression = expression
        self.time_zone = time_zone
        self._zone = _zone(time_zone)
        self._text, self._every_hour = parse(expression)

    def next_after(self, moment: datetime) -> datetime | None:
        """The first tick after *moment*, in UTC; None when there is none up to the year 9999."""
        return next((each for each in self._ticks(moment) if each > moment), None)

    def latest(self, after: datetime, until: datetime, most: int) -> list[datetime]:
        """The last *most* ticks after *after* and up to *until*, in UTC, oldest first."""
        found: list[datetime] = []
        for each in self._ticks(until + _SECOND, reverse=True):
            if each <= after or len(found) == most:
                break
            if each <= until:
                found.append(each)
        return found[::-1]

    def __repr__(self) -> str:
        return f"Cron({self.expression!r}, {self.time_zone!r})"

    def _ticks(self, moment: datetime, *, reverse: bool = False) -> Iterator[datetime]:
        """The ticks from about *moment* on, or backwards from there, in UTC: all on that side of
        it and perhaps a few before."""
        passes = (0, 1) if self._every_hour else (0,)
        # Alone, each pass through the hours that come twice is in order.
        ticks = merge(
            *(self._pass(moment, each, reverse=reverse) for each in passes), reverse=reverse
        )
        return (each for each, _ in groupby(ticks))

    def _pass(self, moment: datetime, fold: int, *, reverse: bool) -> Iterator[datetime]:
        """The ticks whose times are taken as the first (*fold* 0) or second (1) that the clock
        shows of them."""
        with suppress(OverflowError):  # at the ends of time
            local = moment.astimezone(self._zone)
            # In an hour that comes twice, the other pass has been or will be at other times.
            back = -_repeated(local) if reverse else _repeated(local)
            for each in CronSim(self._text, local.replace(tzinfo=None) - back, reverse=reverse):
                found = each.replace(tzinfo=self._zone, fold=fold)
                tick = found.astimezone(UTC)
                # With one tzinfo on both sides it is the time on the wall that is compared.
                if tick.astimezone(self._zone) == found:
                    yield tick
                elif not self._every_hour:
                    yield _end_of_gap(found, self._zone)


def _repeated(local: datetime) -> timedelta:
    """How much of the clock comes twice here; nearly always nothing."""
    first, second = (local.replace(fold=each).astimezone(UTC) for each in (0, 1))
    return second - first


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
    if name == "UTC":  # available even without a time zone database
        return UTC
    with suppress(KeyError, ValueError, OSError):
        if name != "localtime":  # which differs between machines
            return ZoneInfo(name)
    known = sorted(available_timezones() - {"localtime"})
    hint = did_you_mean(name, known) or '; names are such as "Europe/Berlin" or "UTC"'
    if not known:
        hint = "; none are installed here: pip install tzdata"
    raise ConfigError(f"there is no time zone {name!r}{hint}")
