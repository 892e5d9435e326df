"""What add_event accepts beside the payload, and which argument it names when it refuses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sa_outbox.errors import InvalidEvent, WrongArgument
from sa_outbox.event.validation import (
    MAX_AHEAD,
    check_event_type,
    check_priority,
    checked_headers,
    checked_schedule,
    checked_text,
)


class TestEventType:
    @pytest.mark.parametrize(
        "name", ["a", "order.placed", "Order_Placed", "a:b/c-d.e", "v1.order.2", "_x", "x" * 200]
    )
    def test_words_joined_by_single_signs_are_accepted(self, name: str) -> None:
        check_event_type(name)

    @pytest.mark.parametrize(
        "name",
        [
            "",
            " ",
            "\t\n",
            " order",
            "order ",
            "order\n",
            "order placed",
            ".order",
            "order.",
            "order..placed",
            "order.-placed",
            "../secrets",
            "order/../placed",
            "*",
            "order.*",
            "order.#",
            "order.>",
            "order\x00",
            "order\r\nX-Injected: 1",
            "order\x1b[31m",
            "order\u202eplaced",
            "bestellung.größe",
            "\uff4frder",
            "order😀",
            "\u0661",
            "\ud800",
            '"',
            'x","payload":"y',
            "'; DROP TABLE outbox; --",
            "x" * 201,
            "x" * 10_000,
        ],
        ids=ascii,
    )
    def test_everything_else_is_refused_and_named(self, name: str) -> None:
        with pytest.raises(InvalidEvent) as caught:
            check_event_type(name)

        assert caught.value.field == "event_type"
        assert len(str(caught.value)) < 2_000

    def test_a_name_is_refused_the_second_time_too(self) -> None:
        for _ in range(2):
            with pytest.raises(InvalidEvent):
                check_event_type("a b")

    @pytest.mark.parametrize("name", [1, None, b"order.placed", 1.5, ("a",)])
    def test_a_name_that_is_not_text_is_a_wrong_argument(self, name: Any) -> None:
        with pytest.raises(WrongArgument) as caught:
            check_event_type(name)

        assert caught.value.field == "event_type"

    @pytest.mark.parametrize("name", [[], {}])
    def test_a_name_that_can_not_be_hashed_is_a_wrong_argument(self, name: Any) -> None:
        with pytest.raises(WrongArgument):
            check_event_type(name)

    @given(st.text())
    def test_an_accepted_name_needs_no_escaping_anywhere(self, name: str) -> None:
        try:
            check_event_type(name)
        except InvalidEvent:
            return
        assert name.isascii()
        assert name.isprintable()
        assert not set(name) & set("\"'\\ <>&?#*%")

    @given(st.from_regex(r"\A[a-z0-9_]{1,9}([.:/-][a-z0-9_]{1,9}){0,9}\Z"))
    def test_every_name_of_the_documented_form_is_accepted(self, name: str) -> None:
        check_event_type(name)


class TestText:
    FIELDS = ("key", "tenant", "idempotency_key")

    @pytest.mark.parametrize("value", [None, "a", " ", "größe 😀", "x" * 512, "é" * 256, "\u202e"])
    def test_text_of_up_to_512_bytes_is_accepted(self, value: str | None) -> None:
        checked_text("key", value)

    @pytest.mark.parametrize("field", FIELDS)
    @pytest.mark.parametrize(
        "value",
        ["", "x" * 513, "é" * 257, "x" * 1_000_000, "a\x00", "a\nb", "\r", "\x7f", "\ud800"],
        ids=lambda value: ascii(value[:20]),
    )
    def test_text_no_database_or_broker_takes_is_refused_and_named(
        self, field: str, value: str
    ) -> None:
        with pytest.raises(InvalidEvent) as caught:
            checked_text(field, value)

        assert caught.value.field == field
        assert field in str(caught.value)
        assert len(str(caught.value)) < 200

    @pytest.mark.parametrize("value", [0, 1, True, b"a", 1.5, ["a"], object()])
    def test_what_is_not_text_is_a_wrong_argument(self, value: Any) -> None:
        with pytest.raises(WrongArgument) as caught:
            checked_text("key", value)

        assert isinstance(caught.value, TypeError)

    @given(st.text(st.characters(), max_size=600))
    def test_what_is_accepted_can_be_encoded_and_is_bounded(self, value: str) -> None:
        try:
            checked_text("key", value)
        except InvalidEvent:
            return
        assert 1 <= len(value.encode()) <= 512
        assert not any(ord(each) < 32 or ord(each) == 127 for each in value)


class Unreadable(Mapping[str, str]):
    def __getitem__(self, name: str) -> str:
        raise LookupError(name)

    def __iter__(self) -> Iterator[str]:
        raise LookupError

    def __len__(self) -> int:
        return 1


class TestHeaders:
    def test_names_as_in_http_with_text_are_accepted(self) -> None:
        checked_headers({})
        checked_headers({"x-request-id": "é 😀 \u2028", "a.b_c": "", "X" * 128: "y" * 10_000})

    @pytest.mark.parametrize(
        "name",
        ["", " ", "a b", "a:b", "a\r\nb", "-a", ".a", "é", "a\x00", "a" * 129, "a=b", "\ud800"],
        ids=ascii,
    )
    def test_other_names_are_refused(self, name: str) -> None:
        with pytest.raises(InvalidEvent) as caught:
            checked_headers({"ok": "1", name: "x"})

        assert caught.value.field == "headers"

    @pytest.mark.parametrize("value", ["a\r\nInjected: 1", "a\nb", "\x00", "\x7f", "\x1b[2J"])
    def test_a_value_that_could_become_two_headers_is_refused(self, value: str) -> None:
        with pytest.raises(InvalidEvent) as caught:
            checked_headers({"a": value})

        assert caught.value.field == "headers"

    def test_the_version_can_not_be_set_by_hand(self) -> None:
        with pytest.raises(InvalidEvent, match="version"):
            checked_headers({"version": "2"})

    @pytest.mark.parametrize(
        "headers",
        ["a", 1, [("a", "b")], {"a": 1}, {1: "a"}, {"a": None}, {"a": b"b"}, {"a": ["b"]}],
    )
    def test_anything_but_text_to_text_is_a_wrong_argument(self, headers: Any) -> None:
        with pytest.raises(WrongArgument) as caught:
            checked_headers(headers)

        assert caught.value.field == "headers"

    def test_a_mapping_that_can_not_be_read_is_an_invalid_event(self) -> None:
        with pytest.raises(InvalidEvent):
            checked_headers(Unreadable())


class BrokenZone(tzinfo):
    def utcoffset(self, at: datetime | None) -> timedelta:
        raise ZeroDivisionError

    def dst(self, at: datetime | None) -> timedelta:
        raise ZeroDivisionError

    def tzname(self, at: datetime | None) -> str:
        raise ZeroDivisionError


class TestSchedule:
    def test_nothing_is_accepted(self) -> None:
        checked_schedule(None, None)

    @pytest.mark.parametrize("delay", [timedelta(0), timedelta(microseconds=1), MAX_AHEAD])
    def test_a_delay_of_up_to_ten_years_is_accepted(self, delay: timedelta) -> None:
        checked_schedule(None, delay)

    @pytest.mark.parametrize(
        "delay",
        [
            timedelta(microseconds=-1),
            timedelta.min,
            MAX_AHEAD + timedelta(microseconds=1),
            timedelta(days=999_999_999),
            timedelta.max,
        ],
    )
    def test_a_negative_or_endless_delay_is_refused(self, delay: timedelta) -> None:
        with pytest.raises(InvalidEvent) as caught:
            checked_schedule(None, delay)

        assert caught.value.field == "delay"

    @pytest.mark.parametrize("delay", [1, 0, 1.5, "1h", float("nan"), True])
    def test_a_delay_that_is_not_a_span_is_a_wrong_argument(self, delay: Any) -> None:
        with pytest.raises(WrongArgument) as caught:
            checked_schedule(None, delay)

        assert caught.value.field == "delay"

    @pytest.mark.parametrize(
        "zone", [UTC, timezone(timedelta(hours=-11)), ZoneInfo("Europe/Berlin")], ids=str
    )
    def test_an_aware_time_is_accepted_in_the_past_too(self, zone: tzinfo) -> None:
        checked_schedule(datetime.now(zone), None)
        checked_schedule(datetime(1971, 1, 1, tzinfo=zone), None)

    def test_a_naive_time_is_refused(self) -> None:
        with pytest.raises(InvalidEvent, match="aware") as caught:
            checked_schedule(datetime(2026, 1, 1), None)  # noqa: DTZ001 - that is the point

        assert caught.value.field == "run_at"

    @pytest.mark.parametrize(
        "run_at",
        [
            datetime(9999, 12, 31, tzinfo=UTC),
            datetime.max.replace(tzinfo=timezone(timedelta(hours=-23))),
            datetime.min.replace(tzinfo=timezone(timedelta(hours=23))),
            datetime(1969, 12, 31, tzinfo=UTC),
        ],
        ids=str,
    )
    def test_a_time_before_1970_or_far_ahead_is_refused(self, run_at: datetime) -> None:
        with pytest.raises(InvalidEvent) as caught:
            checked_schedule(run_at, None)

        assert caught.value.field == "run_at"

    @pytest.mark.parametrize("run_at", [1, "2026-01-01", date(2026, 1, 1), timedelta(1)])
    def test_a_time_that_is_not_a_datetime_is_a_wrong_argument(self, run_at: Any) -> None:
        with pytest.raises(WrongArgument) as caught:
            checked_schedule(run_at, None)

        assert caught.value.field == "run_at"

    def test_a_time_and_a_delay_together_are_refused(self) -> None:
        with pytest.raises(InvalidEvent, match="not both"):
            checked_schedule(datetime.now(UTC), timedelta(0))

    def test_a_time_zone_that_raises_is_an_invalid_event(self) -> None:
        with pytest.raises(InvalidEvent):
            checked_schedule(datetime(2026, 1, 1, tzinfo=BrokenZone()), None)

    @given(st.datetimes(timezones=st.timezones() | st.none()) | st.none(), st.timedeltas())
    def test_no_other_error_comes_out(self, run_at: datetime | None, delay: timedelta) -> None:
        for arguments in ((run_at, None), (None, delay), (run_at, delay)):
            with suppress(InvalidEvent):
                checked_schedule(*arguments)


class TestPriority:
    @pytest.mark.parametrize("priority", [0, 1, -1, 32_767, -32_768])
    def test_a_smallint_is_accepted(self, priority: int) -> None:
        check_priority(priority)

    @pytest.mark.parametrize("priority", [32_768, -32_769, 2**63, -(10**300)])
    def test_a_larger_number_is_refused(self, priority: int) -> None:
        with pytest.raises(InvalidEvent) as caught:
            check_priority(priority)

        assert caught.value.field == "priority"

    @pytest.mark.parametrize("priority", [True, 1.0, "1", None, float("nan")])
    def test_what_is_not_an_int_is_a_wrong_argument(self, priority: Any) -> None:
        with pytest.raises(WrongArgument) as caught:
            check_priority(priority)

        assert caught.value.field == "priority"

    def test_an_endless_number_is_an_invalid_event(self) -> None:
        with pytest.raises(InvalidEvent):
            check_priority(10**5_000)
