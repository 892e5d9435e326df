"""Cron expressions: what they mean, minute by minute, and where the clock is put forward or back.

``scanned`` is the specification: it looks at every minute there is. Everything else is compared
with it.
"""

from __future__ import annotations

import re
import zoneinfo
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from time import perf_counter
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sa_outbox.declare import cron as module
from sa_outbox.declare.cron import MAX_TICKS, ON_TIME, Cron, Missed, Tick, due_ticks
from sa_outbox.errors import ConfigError

ZONES = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "America/St_Johns",  # until 2011, back at one past midnight: into the day before
    "America/Sao_Paulo",  # until 2019, forward at midnight
    "Australia/Lord_Howe",  # by half an hour
    "Asia/Kathmandu",  # a quarter of an hour beside
    "Pacific/Apia",  # had no 30 December 2011
]
MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
CHANGES = [
    datetime(2024, 3, 31, 1, tzinfo=UTC),  # Berlin
    datetime(2024, 10, 27, 1, tzinfo=UTC),
    datetime(2024, 3, 10, 7, tzinfo=UTC),  # New York
    datetime(2024, 11, 3, 6, tzinfo=UTC),
    datetime(2024, 4, 6, 15, tzinfo=UTC),  # Lord Howe
    datetime(2024, 10, 5, 15, 30, tzinfo=UTC),
    datetime(2010, 11, 7, 2, 31, tzinfo=UTC),  # St. John's
    datetime(2010, 3, 14, 3, 31, tzinfo=UTC),
    datetime(2018, 11, 4, 3, tzinfo=UTC),  # Sao Paulo
    datetime(2018, 2, 18, 2, tzinfo=UTC),
    datetime(2011, 12, 30, 10, tzinfo=UTC),  # Apia
    datetime(2024, 2, 29, tzinfo=UTC),
    datetime(2100, 2, 28, 12, tzinfo=UTC),  # no leap year
]


def at(text: str) -> datetime:
    """A time in UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def ticks(expression: str, zone: str, after: str, number: int) -> list[str]:
    """The first *number* ticks, as the clock on the wall shows them."""
    cron, moment, shown = Cron(expression, zone), at(after), []
    for _ in range(number):
        found = cron.next_after(moment)
        assert found is not None
        moment = found
        shown.append(moment.astimezone(ZoneInfo(zone)).strftime("%m-%d %H:%M %z"))
    return shown


@dataclass(frozen=True)
class Drawn:
    """An expression, and what it was made from."""

    text: str
    values: tuple[frozenset[int], ...]
    starred: tuple[bool, ...]

    def fits(self, wall: datetime) -> bool:
        minutes, hours, days, months, weekdays = self.values
        of_month, of_week = wall.day in days, (wall.weekday() + 1) % 7 in weekdays
        either = not self.starred[2] and not self.starred[4]
        day = of_month or of_week if either else of_month and of_week
        return wall.minute in minutes and wall.hour in hours and wall.month in months and day

    @property
    def every_hour(self) -> bool:
        return len(self.values[1]) == 24


@st.composite
def fields(
    draw: st.DrawFn, low: int, high: int, *, star: int = 2
) -> tuple[str, frozenset[int], bool]:
    """One field, its values, and whether it begins with a star."""
    kind = draw(st.sampled_from(["*"] * star + ["step", "list", "range", "stepped range"]))
    if kind == "*":
        return "*", frozenset(range(low, high + 1)), True
    if kind == "step":
        step = draw(st.integers(1, high))
        return f"*/{step}", frozenset(range(low, high + 1, step)), True
    if kind == "list":
        values = draw(st.lists(st.integers(low, high), min_size=1, max_size=4))
        return ",".join(map(str, values)), frozenset(values), False
    begin, end = sorted((draw(st.integers(low, high)), draw(st.integers(low, high))))
    if kind == "range":
        return f"{begin}-{end}", frozenset(range(begin, end + 1)), False
    step = draw(st.integers(1, high))
    return f"{begin}-{end}/{step}", frozenset(range(begin, end + 1, step)), False


@st.composite
def expressions(draw: st.DrawFn) -> Drawn:
    drawn = [
        draw(fields(0, 59, star=1)),
        draw(fields(0, 23)),
        draw(fields(1, 31, star=6)),
        draw(fields(1, 12, star=8)),
        draw(fields(0, 6, star=6)),
    ]
    text, values, starred = zip(*drawn, strict=True)
    return Drawn(" ".join(text), values, starred)


near_changes = st.builds(
    lambda change, minutes, seconds: change + timedelta(minutes=minutes, seconds=seconds),
    st.sampled_from(CHANGES),
    st.integers(-26 * 60, 4 * 60),
    st.sampled_from([0, 0, 1, 59.999999]),
)
anywhere = st.builds(
    lambda days, seconds: at("1990-01-01") + timedelta(days=days, seconds=seconds),
    st.integers(0, 70 * 365),
    st.integers(0, 86_400),
)
moments = near_changes | anywhere


def scanned(drawn: Drawn, zone: tzinfo, begin: datetime, end: datetime) -> Iterator[datetime]:
    """The ticks after *begin* and up to *end*, found by looking at each minute."""
    # Begin well before, to know which times the clock has shown already.
    moment = begin.replace(second=0, microsecond=0) - 2 * DAY
    last = (moment - MINUTE).astimezone(zone).replace(tzinfo=None)
    highest = last
    while moment <= end:
        wall = moment.astimezone(zone).replace(tzinfo=None)
        if drawn.every_hour:
            ticks = drawn.fits(wall)
        else:
            # A time that was shown before does not count again; one that was jumped over does.
            new = (highest + n * MINUTE for n in range(1, round((wall - highest) / MINUTE) + 1))
            ticks = any(drawn.fits(each) for each in new)
        if ticks and moment > begin:
            yield moment
        highest = max(highest, wall)
        moment += MINUTE


def never(drawn: Drawn) -> bool:
    """Whether no day of 41 years fits: a leap day has come on each day of the week by then."""
    first = at("2000-01-01")
    minute, hour = min(drawn.values[0]), min(drawn.values[1])
    span = range(366 * 41)
    return not any(
        drawn.fits(first + n * DAY + timedelta(hours=hour, minutes=minute)) for n in span
    )


class TestAgainstEveryMinute:
    @given(expressions(), st.sampled_from(ZONES), moments)
    @example(
        Drawn(
            "0 0 * * *",
            (
                frozenset({0}),
                frozenset({0}),
                frozenset(range(1, 32)),
                frozenset(range(1, 13)),
                frozenset(range(7)),
            ),
            (False, False, True, True, True),
        ),
        "Pacific/Apia",
        at("2011-12-29 12:00"),
    )
    @settings(max_examples=150, deadline=None)
    def test_the_next_tick_is_the_first_minute_that_fits(
        self, drawn: Drawn, zone: str, moment: datetime
    ) -> None:
        end = moment + 3 * DAY
        try:
            cron = Cron(drawn.text, zone)
        except ConfigError:
            assert never(drawn)
            return

        found = cron.next_after(moment)

        expected = next(scanned(drawn, ZoneInfo(zone), moment, end), None)
        assert found is not None
        assert found > moment
        assert found.utcoffset() == timedelta(0)
        if expected is None:
            assert found > end
        else:
            assert found == expected

    @given(expressions(), st.sampled_from(ZONES), moments, st.integers(1, 3000), st.integers(1, 50))
    @settings(max_examples=100, deadline=None)
    def test_the_latest_ticks_are_the_last_minutes_that_fit(
        self, drawn: Drawn, zone: str, moment: datetime, minutes: int, most: int
    ) -> None:
        end = moment + minutes * MINUTE
        try:
            cron = Cron(drawn.text, zone)
        except ConfigError:
            return

        found = cron.latest(moment, end, most)

        assert found == list(scanned(drawn, ZoneInfo(zone), moment, end))[-most:]

    @given(expressions(), st.sampled_from(ZONES), anywhere)
    @settings(max_examples=100, deadline=None)
    def test_the_next_tick_comes_on_the_first_day_that_fits(
        self, drawn: Drawn, zone: str, moment: datetime
    ) -> None:
        """For those that come every few years, and are out of reach for the scan."""
        try:
            cron = Cron(drawn.text, zone)
        except ConfigError:
            return
        noon = drawn.values[1] & frozenset(range(4, 22))
        if not noon:  # where no clock changes
            return

        found = cron.next_after(moment)

        assert found is not None
        here = ZoneInfo(zone)
        first, last = moment.astimezone(here).date(), found.astimezone(here).date()
        between = (first + n * DAY for n in range(1, (last - first).days))
        hour, minute = min(drawn.values[1]), min(drawn.values[0])
        times = (datetime.combine(day, time(hour, minute)) for day in between)
        assert not any(drawn.fits(each) for each in times)

    @given(expressions())
    @settings(max_examples=100, deadline=None)
    def test_an_expression_is_refused_if_and_only_if_it_never_comes_true(
        self, drawn: Drawn
    ) -> None:
        refused = ""
        try:
            Cron(drawn.text, "UTC")
        except ConfigError as error:
            refused = str(error)

        assert ("never matches" in refused) == bool(refused) == never(drawn)


class TestWhereTheClockChanges:
    def test_a_time_that_does_not_exist_is_the_first_moment_after_the_jump(self) -> None:
        assert ticks("30 2 * * *", "Europe/Berlin", "2024-03-29 12:00", 3) == [
            "03-30 02:30 +0100",
            "03-31 03:00 +0200",
            "04-01 02:30 +0200",
        ]

    def test_many_times_that_do_not_exist_are_one_tick(self) -> None:
        assert ticks("*/10 2 * * *", "Europe/Berlin", "2024-03-30 12:00", 2) == [
            "03-31 03:00 +0200",
            "04-01 02:00 +0200",
        ]

    def test_a_tick_at_the_end_of_the_jump_is_not_doubled(self) -> None:
        assert ticks("0 2,3 * * *", "Europe/Berlin", "2024-03-30 12:00", 2) == [
            "03-31 03:00 +0200",
            "04-01 02:00 +0200",
        ]

    def test_a_time_that_comes_twice_ticks_the_first_time(self) -> None:
        assert ticks("30 2 * * *", "Europe/Berlin", "2024-10-26 12:00", 2) == [
            "10-27 02:30 +0200",
            "10-28 02:30 +0100",
        ]

    def test_every_quarter_of_an_hour_stays_so_through_an_hour_that_comes_twice(self) -> None:
        cron, moment = Cron("*/15 * * * *", "Europe/Berlin"), at("2024-10-26 23:50")
        for n in range(20):
            found = cron.next_after(moment)
            assert found == at("2024-10-27 00:00") + n * timedelta(minutes=15)
            moment = found

    def test_every_quarter_of_an_hour_stays_so_through_an_hour_that_does_not_exist(self) -> None:
        cron, moment = Cron("*/15 * * * *", "America/New_York"), at("2024-03-10 05:50")
        for n in range(20):
            found = cron.next_after(moment)
            assert found == at("2024-03-10 06:00") + n * timedelta(minutes=15)
            moment = found

    def test_an_hour_after_the_other_has_nothing_to_make_up_for(self) -> None:
        assert ticks("20 * * * *", "Europe/Berlin", "2024-03-31 00:00", 3) == [
            "03-31 01:20 +0100",
            "03-31 03:20 +0200",
            "03-31 04:20 +0200",
        ]

    def test_half_an_hour_that_does_not_exist_ends_at_half_past(self) -> None:
        assert ticks("10 2 * * *", "Australia/Lord_Howe", "2024-10-04 16:00", 2) == [
            "10-06 02:30 +1100",
            "10-07 02:10 +1100",
        ]

    def test_half_an_hour_that_comes_twice_ticks_once(self) -> None:
        assert ticks("45 1 * * *", "Australia/Lord_Howe", "2024-04-06 00:00", 2) == [
            "04-07 01:45 +1100",
            "04-08 01:45 +1030",
        ]

    def test_a_day_that_goes_on_after_the_next_has_begun_is_kept_in_order(self) -> None:
        """At one past midnight back to 23:01: Saturday, a minute of Sunday, Saturday again."""
        quarter, begin = timedelta(minutes=15), at("2010-11-07 02:00")
        cron, saturdays = (Cron(f"*/15 * * * {day}", "America/St_Johns") for day in ("*", "sat"))
        moments = [begin + n * quarter for n in range(10)]

        assert [cron.next_after(each) for each in moments] == [each + quarter for each in moments]
        assert [cron.latest(begin, each, 1) for each in moments[1:]] == [
            [each] for each in moments[1:]
        ]
        assert saturdays.next_after(at("2010-11-07 02:15")) == at("2010-11-07 02:45")
        assert saturdays.next_after(at("2010-11-07 02:30")) == at("2010-11-07 02:45")

    def test_a_day_that_does_not_exist_ticks_when_the_next_begins(self) -> None:
        assert ticks("0 3 * * *", "Pacific/Apia", "2011-12-29 20:00", 3) == [
            "12-31 00:00 +1400",
            "12-31 03:00 +1400",
            "01-01 03:00 +1400",
        ]


class TestExpressions:
    @pytest.mark.parametrize(
        ("expression", "same"),
        [
            ("@hourly", "0 * * * *"),
            ("@daily", "0 0 * * *"),
            ("@weekly", "0 0 * * 0"),
            ("@monthly", "0 0 1 * *"),
            ("@Yearly", "0 0 1 1 *"),
            ("0 0 * * 7", "0 0 * * 0"),
            ("0 0 * * sun", "0 0 * * 0"),
            ("0 0 * * Mon-Fri", "0 0 * * 1-5"),
            ("0 0 * * sat-sun", "0 0 * * 0,6"),
            ("0 0 * * 5-7", "0 0 * * 5,6,0"),
            ("0 0 1 JAN,jul *", "0 0 1 1,7 *"),
            ("  0   0 1 1\t* ", "0 0 1 1 *"),
            ("0-10/5,30 * * * *", "0,5,10,30 * * * *"),
            ("00 09 * * *", "0 9 * * *"),
            ("10-10/5 * * * *", "10 * * * *"),
            ("0 0 * * sun-0", "0 0 * * 0"),
            ("0 0 * * mon-sun/2", "0 0 * * 1,3,5,0"),
            ("0 0 29-31/2 * mon", "0 0 29,31 * mon"),
        ],
    )
    def test_two_ways_to_say_the_same(self, expression: str, same: str) -> None:
        one, other = Cron(expression, "UTC"), Cron(same, "UTC")
        begin, end = at("2023-06-01"), at("2025-06-01")

        assert one.latest(begin, end, 10_000) == other.latest(begin, end, 10_000) != []

    def test_either_day_is_enough_when_both_are_restricted(self) -> None:
        assert ticks("0 0 13 * fri", "UTC", "2024-09-01", 4) == [
            "09-06 00:00 +0000",
            "09-13 00:00 +0000",
            "09-20 00:00 +0000",
            "09-27 00:00 +0000",
        ]
        assert ticks("0 0 13 * fri", "UTC", "2024-10-05", 2) == [
            "10-11 00:00 +0000",
            "10-13 00:00 +0000",
        ]

    def test_both_days_are_needed_when_one_begins_with_a_star(self) -> None:
        assert ticks("0 0 */2 * mon", "UTC", "2024-09-01", 2) == [
            "09-09 00:00 +0000",
            "09-23 00:00 +0000",
        ]

    @pytest.mark.parametrize(
        ("expression", "days"),
        [
            ("0 0 L * *", ["01-31", "02-29", "03-31"]),
            ("0 0 LW * *", ["01-31", "02-29", "03-29"]),
            ("0 0 * * fri#2", ["01-12", "02-09", "03-08"]),
            ("0 0 * * 5L", ["01-26", "02-23", "03-29"]),
            ("0 0 * * thu#5", ["02-29", "05-30", "08-29"]),
        ],
    )
    def test_a_day_counted_from_the_end_or_by_its_week(
        self, expression: str, days: list[str]
    ) -> None:
        expected = [f"{day} 00:00 +0000" for day in days]

        assert ticks(expression, "UTC", "2024-01-01", 3) == expected

    @pytest.mark.parametrize(
        ("expression", "told"),
        [
            ("60 * * * *", "minute '60': not understood. Allowed: 0 to 59; *, lists"),
            ("0 24 * * *", "hour '24': not understood. Allowed: 0 to 23; *, lists"),
            ("0 0 0 * *", "day of month '0': not understood. Allowed: 1 to 31, L"),
            ("0 0 * 13 *", "month '13': not understood. Allowed: 1 to 12 or jan to dec"),
            ("0 0 * * 8", "day of week '8': not understood. Allowed: 0 to 7 or sun to sat"),
            ("0 0 * foo *", "month 'foo': not understood"),
            ("0 0 * * mon,foo", "day of week 'foo': not understood"),
            ("mon * * * *", "minute 'mon': not understood"),
            ("9" * 5000 + " * * * *", "not understood"),
            ("L * * * *", "minute 'l': not understood"),
            ("0 0 * * L", "day of week 'l': not understood"),
            ("0 0 * * fri#6", "day of week 'fri#6': not understood"),
            ("0 0 * * friL", "day of week 'fril': not understood"),
            ("5/15 * * * *", "a step needs * or a range"),
            ("0 0 L/2 * *", "a step needs * or a range"),
            ("*/ * * * *", "a step is 1 to 59"),
            ("*/2/2 * * * *", "a step is 1 to 59"),
            ("*/-1 * * * *", "a step is 1 to 59"),
            ("0 */24 * * *", "a step is 1 to 23"),
            ("*/0 * * * *", "a step is 1 to 59"),
            ("*/90 * * * *", "a step is 1 to 59"),
            ("30-10 * * * *", "'30-10': not understood. Allowed: 0 to 59; *, lists (1,3), ranges"),
            ("1,,2 * * * *", "minute '': not understood"),
            ("-1 * * * *", "minute '-1': not understood"),
            ("1.5 * * * *", "not understood"),
            ("٣ * * * *", "not understood"),
            ("* * * *", "has 4 fields; it needs five"),
            ("0 * * * * *", "has 6 fields; it needs five"),
            ("", "has 0 fields"),
            ("@reboot", "there are @hourly, @daily"),
            ("0 0 30 2 *", "never comes true: no date fits day of month '30', month '2' and"),
            ("0 0 */20 * 1L", "never comes true: no date fits day of month '*/20', month '*' and"),
            ("0 0 31 4,6,9,11 *", "never comes true"),
            ("0 0 30,31 feb */2", "never comes true"),
            (5, "must be a str, not int"),
        ],
    )
    def test_what_is_wrong_is_said_with_the_field_and_what_is_allowed(
        self, expression: Any, told: str
    ) -> None:
        with pytest.raises(ConfigError, match=re.escape(told)):
            Cron(expression, "UTC")

    @pytest.mark.parametrize(
        ("zone", "told"),
        [
            ("Europe/Berln", "; did you mean 'Europe/Berlin'?"),
            ("CET+1", "there is no time zone 'CET+1'"),
            ("localtime", "there is no time zone 'localtime'"),
            ("Europe", "there is no time zone"),
            ("../../etc/passwd", "there is no time zone"),
            ("", "there is no time zone"),
            (None, "must be a name"),
            (UTC, "must be a name"),
        ],
    )
    def test_a_zone_that_is_none_is_refused(self, zone: Any, told: str) -> None:
        with pytest.raises(ConfigError, match=re.escape(told)):
            Cron("@daily", zone)

    def test_without_a_database_of_zones_utc_works_and_others_say_what_to_install(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def not_found(name: str) -> tzinfo:
            raise zoneinfo.ZoneInfoNotFoundError(name)

        monkeypatch.setattr(module, "ZoneInfo", not_found)
        monkeypatch.setattr(module, "available_timezones", set)

        assert Cron("@daily", "UTC").next_after(at("2024-01-01")) == at("2024-01-02")
        with pytest.raises(ConfigError, match="pip install tzdata"):
            Cron("@daily", "Europe/Berlin")


class TestFarAway:
    def test_a_leap_day_is_found_over_a_century_without_one(self) -> None:
        assert Cron("0 0 29 2 *", "UTC").next_after(at("2096-03-01")) == at("2104-02-29")

    def test_it_is_quick_however_rare_and_however_far(self) -> None:
        began = perf_counter()

        rare = Cron("59 23 29 2 */7", "Australia/Lord_Howe").next_after(at("2404-03-01"))
        often = Cron("* * * * *", "Europe/Berlin").next_after(at("2400-02-29"))
        after_long = Cron("* * * * *", "UTC").latest(at("0001-01-03"), at("2400-01-01"), 1000)

        assert perf_counter() - began < 1
        assert rare is not None
        assert rare.astimezone(ZoneInfo("Australia/Lord_Howe")).date() == date(2432, 2, 29)
        assert often == at("2400-02-29") + MINUTE
        assert after_long[-1] == at("2400-01-01")
        assert len(after_long) == 1000

    @pytest.mark.parametrize("zone", ["UTC", "Asia/Kathmandu", "America/New_York"])
    def test_at_the_end_of_time_there_is_no_next_tick(self, zone: str) -> None:
        end = datetime.max.replace(tzinfo=UTC)

        assert Cron("@hourly", zone).next_after(end) is None
        assert Cron("@yearly", zone).next_after(at("9999-06-01")) is None


class TestDueTicks:
    HOURLY = Cron("0 * * * *", "UTC")

    @pytest.mark.parametrize("missed", ["one", "skip", "all"])
    def test_nothing_is_due_before_the_next_tick(self, missed: Missed) -> None:
        assert due_ticks(self.HOURLY, at("2024-01-01 10:00"), at("2024-01-01 10:59"), missed) == []

    @pytest.mark.parametrize("missed", ["one", "skip", "all"])
    def test_a_tick_on_time_is_one_event(self, missed: Missed) -> None:
        now = at("2024-01-01 11:00") + timedelta(milliseconds=3)

        due = due_ticks(self.HOURLY, at("2024-01-01 10:00"), now, missed)

        assert due == [Tick(at("2024-01-01 11:00"), 0)]

    @pytest.mark.parametrize("missed", ["one", "skip", "all"])
    def test_a_clock_that_was_set_back_makes_nothing_due(self, missed: Missed) -> None:
        assert due_ticks(self.HOURLY, at("2024-01-01 10:00"), at("2023-12-31 23:00"), missed) == []
        assert due_ticks(self.HOURLY, at("2024-01-01 10:00"), at("2024-01-01 10:00"), missed) == []

    def test_one_event_stands_for_all_that_were_missed(self) -> None:
        due = due_ticks(self.HOURLY, at("2024-01-01 10:00"), at("2024-01-01 14:30"), "one")

        assert due == [Tick(at("2024-01-01 14:00"), 3)]

    def test_skip_leaves_out_a_tick_that_is_late(self) -> None:
        tick = at("2024-01-01 14:00")

        assert due_ticks(self.HOURLY, at("2024-01-01 10:00"), tick + ON_TIME, "skip") == [
            Tick(tick, 3)
        ]
        late = tick + ON_TIME + timedelta(microseconds=1)
        assert due_ticks(self.HOURLY, at("2024-01-01 10:00"), late, "skip") == []

    def test_all_is_an_event_for_each_tick(self) -> None:
        due = due_ticks(self.HOURLY, at("2024-01-01 10:00"), at("2024-01-01 13:30"), "all")

        assert due == [Tick(at(f"2024-01-01 {hour}:00"), 0) for hour in (11, 12, 13)]

    def test_all_is_the_last_thousand_and_the_first_of_them_says_so(self) -> None:
        now = at("2024-03-01 00:30")

        due = due_ticks(self.HOURLY, now - timedelta(hours=1200), now, "all")

        assert len(due) == MAX_TICKS == 1000
        assert due[0] == Tick(at("2024-03-01") - timedelta(hours=999), 200)
        assert due[-1] == Tick(at("2024-03-01"), 0)
        assert {each.missed for each in due[1:]} == {0}

    @pytest.mark.parametrize("missed", ["one", "all"])
    def test_the_count_ends_at_a_thousand(self, missed: Missed) -> None:
        due = due_ticks(Cron("* * * * *", "UTC"), at("1970-01-01"), at("2400-01-01"), missed)

        assert due[0].missed == 1000

    def test_a_last_tick_that_no_expression_made_is_gone_on_from(self) -> None:
        """The expression was changed, or the row is new."""
        last = at("2024-01-01 10:17:31.5")

        assert due_ticks(self.HOURLY, last, at("2024-01-01 10:59"), "one") == []
        assert due_ticks(self.HOURLY, last, at("2024-01-01 11:00"), "one") == [
            Tick(at("2024-01-01 11:00"), 0)
        ]

    @given(
        expressions(),
        st.sampled_from(ZONES),
        moments,
        st.lists(st.integers(-3 * 60, 10 * 60 * 60), min_size=1, max_size=15),
        st.sampled_from(["one", "all"]),
    )
    @settings(max_examples=100, deadline=None)
    def test_whenever_it_is_looked_no_tick_comes_twice_and_none_is_lost(
        self, drawn: Drawn, zone: str, begin: datetime, steps: list[int], missed: Missed
    ) -> None:
        """By a clock that is looked at now and then, drifts, and is set back at times."""
        try:
            cron = Cron(drawn.text, zone)
        except ConfigError:
            return
        now = last_tick = highest = begin
        came: list[Tick] = []
        for seconds in steps:
            now += timedelta(seconds=seconds)
            highest = max(highest, now)
            due = due_ticks(cron, last_tick, now, missed)
            came += due
            last_tick = due[-1].at if due else last_tick

        expected = list(scanned(drawn, ZoneInfo(zone), begin, highest))
        times = [each.at for each in came]
        assert times == sorted(set(times))
        assert set(times) <= set(expected)
        assert all(each.missed < 1000 for each in came)
        assert sum(each.missed + 1 for each in came) == len(expected)
        if missed == "all" and not any(each.missed for each in came):
            assert times == expected
