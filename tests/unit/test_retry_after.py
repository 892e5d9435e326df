"""How long an error asks to wait: whatever it says, there is an answer, and it has an end."""

from __future__ import annotations

import io
import urllib.error
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta, timezone
from email.message import Message
from email.utils import format_datetime
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any, NoReturn
from unittest.mock import MagicMock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sa_outbox.policy.retry_after import LONGEST, retry_after

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


class HeadersOfHttpx(Mapping[str, str]):
    """Case does not matter; as in requests, aiohttp and the rest."""

    def __init__(self, **given: str) -> None:
        self._given = {name.lower().replace("_", "-"): value for name, value in given.items()}

    def __getitem__(self, name: str) -> str:
        return self._given[name.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._given)

    def __len__(self) -> int:
        return len(self._given)


class FalseAnswer(SimpleNamespace):
    """As ``requests.Response``: false when its status is an error's."""

    def __bool__(self) -> bool:
        return False


class HTTPStatusError(Exception):
    """As httpx and requests have it."""

    def __init__(self, status: Any, headers: Any, answer: Any = SimpleNamespace) -> None:
        super().__init__(f"{status}")
        self.response = answer(status_code=status, headers=headers)


class ClientResponseError(Exception):
    """As aiohttp has it."""

    def __init__(self, status: Any, headers: Any) -> None:
        super().__init__(f"{status}")
        self.status = status
        self.headers = headers


def of_urllib(status: Any, headers: Any) -> Exception:
    given = Message()
    for name, value in headers.items():
        given[name] = value
    return urllib.error.HTTPError("https://example.com", status, "busy", given, io.BytesIO())


def asked(error: BaseException) -> timedelta | None:
    return retry_after(error, now=NOW)


def header(value: Any) -> timedelta | None:
    """What an answer with this header asks for."""
    return asked(HTTPStatusError(429, {"Retry-After": value}))


def own(value: Any) -> timedelta | None:
    """What an error with this attribute asks for."""
    error = ValueError()
    error.retry_after = value  # type: ignore[attr-defined]  # as many libraries have
    return asked(error)


LIBRARIES = pytest.mark.parametrize(
    "make",
    [
        HTTPStatusError,
        lambda status, headers: HTTPStatusError(status, headers, FalseAnswer),
        ClientResponseError,
        of_urllib,
    ],
    ids=["httpx", "requests", "aiohttp", "urllib"],
)


class TestAnswers:
    @LIBRARIES
    def test_only_one_that_says_busy_says_how_long(self, make: Any) -> None:
        busy = [429, 503, HTTPStatus.TOO_MANY_REQUESTS]
        others = [200, 301, 400, 401, 403, 404, 408, 413, 425, 500, 502, 504]

        def waits(status: int) -> timedelta | None:
            return asked(make(status, HeadersOfHttpx(retry_after="90")))

        assert [waits(each) for each in busy] == [timedelta(seconds=90)] * 3
        assert [each for each in others if waits(each) is not None] == []

    @LIBRARIES
    def test_without_the_header_nothing_is_asked_for(self, make: Any) -> None:
        assert asked(make(429, HeadersOfHttpx(date="x"))) is None

    @pytest.mark.parametrize("name", ["Retry-After", "retry-after"])
    def test_a_plain_dict_will_do(self, name: str) -> None:
        assert asked(HTTPStatusError(503, {name: "5"})) == timedelta(seconds=5)

    def test_an_error_of_the_standard_library_says_nothing(self) -> None:
        assert asked(ValueError("Retry-After: 5")) is None

    def test_only_the_error_itself_is_asked_and_not_its_cause(self) -> None:
        error = ValueError()
        error.__cause__ = HTTPStatusError(429, {"Retry-After": "5"})

        assert asked(error) is None


class TestHeader:
    @given(st.integers(0, 86_400))
    def test_seconds_are_seconds(self, seconds: int) -> None:
        assert header(str(seconds)) == header(seconds) == timedelta(seconds=seconds)

    @given(st.integers(0, 86_400), st.integers(-23, 23))
    def test_a_date_is_the_time_until_then(self, seconds: int, zone: int) -> None:
        then = NOW + timedelta(seconds=seconds)

        assert header(format_datetime(then, usegmt=True)) == timedelta(seconds=seconds)
        there = then.astimezone(timezone(timedelta(hours=zone)))
        assert header(format_datetime(there)) == timedelta(seconds=seconds)

    def test_each_of_the_three_forms_of_http_is_read(self) -> None:
        dates = (
            "Sat, 31 Jan 2026 12:01:00 GMT",
            "Saturday, 31-Jan-26 12:01:00 GMT",
            "Sat Jan 31 12:01:00 2026",
        )

        assert [header(each) for each in dates] == [timedelta(minutes=1)] * 3

    def test_what_is_meant_is_understood(self) -> None:
        meant = {" 7 ": 7, b"7": 7, "1.5": 1.5, "007": 7, 7: 7, 0.25: 0.25}

        assert {each: header(each) for each in meant} == {
            each: timedelta(seconds=seconds) for each, seconds in meant.items()
        }

    def test_what_can_not_be_meant_asks_for_nothing(self) -> None:
        values: list[Any] = [
            "",
            "soon",
            "-1",
            "+1",
            "1e5",
            "0x10",
            "1,5",
            "120, 60",
            "٣",
            "nan",
            "inf",
            "NaN",
            "Sat, 31 Jan 2026 11:59:59 GMT",
            "Sat, 99 Jan 2026 12:00:00 GMT",
            "Sat, 31 Jan 99999 12:00:00 GMT",
            "Sat, 31 Jan 2026 12:00:00 +9999999999",
            "Sat, 31 Jan 0000 12:00:00 GMT",
            "9" * 5_000,
            "9" * 50_000_000,
            b"\xff",
            b"9" * 5_000,
            "\x00",
            "\ud800",
            None,
            True,
            -1,
            float("nan"),
            [5],
            {"seconds": 5},
            object,
        ]

        assert [ascii(each)[:40] for each in values if header(each) is not None] == []

    def test_no_wait_is_longer_than_a_day(self) -> None:
        values = ["86401", "9" * 99, 10**400, float("inf"), "Fri, 31 Dec 9999 23:59:59 GMT"]

        assert [header(each) for each in values] == [timedelta(days=1)] * len(values)
        assert timedelta(days=1) == LONGEST


class TestOfItsOwn:
    def test_a_time_or_a_number_of_seconds_is_honoured(self) -> None:
        said = {timedelta(minutes=2): 120, 5: 5, 2.5: 2.5, 0: 0, "30": 30}

        assert {each: own(each) for each in said} == {
            each: timedelta(seconds=seconds) for each, seconds in said.items()
        }

    def test_anything_else_asks_for_nothing(self) -> None:
        values = [None, True, -1, timedelta(-1), float("nan"), "soon", NOW, len, object]

        assert [each for each in values if own(each) is not None] == []

    def test_no_wait_is_longer_than_a_day(self) -> None:
        values = [timedelta.max, 10**40, 1e308, float("inf")]

        assert [own(each) for each in values] == [LONGEST] * len(values)

    def test_it_comes_before_the_header(self) -> None:
        error = HTTPStatusError(429, {"Retry-After": "60"})
        error.retry_after = 5  # type: ignore[attr-defined]  # as openai and others do

        assert asked(error) == timedelta(seconds=5)

    def test_when_it_is_not_understood_the_header_is_asked(self) -> None:
        error = HTTPStatusError(429, {"Retry-After": "60"})
        error.retry_after = "soon"  # type: ignore[attr-defined]  # as openai and others do

        assert asked(error) == timedelta(minutes=1)


class Hostile:
    """Whatever is asked of it, it raises."""

    def __init__(self, error: type[BaseException]) -> None:
        object.__setattr__(self, "_error", error)

    def __getattribute__(self, name: str) -> NoReturn:
        raise object.__getattribute__(self, "_error")


RAISED: list[type[BaseException]] = [
    RuntimeError,
    AttributeError,
    RecursionError,
    SystemExit,
    KeyboardInterrupt,
]


class TestHostileErrors:
    @pytest.mark.parametrize("raised", RAISED)
    def test_a_property_that_raises_says_nothing(self, raised: type[BaseException]) -> None:
        class Odd(Exception):
            @property
            def retry_after(self) -> NoReturn:
                raise raised

            response = status = headers = retry_after

        assert asked(Odd()) is None

    @pytest.mark.parametrize("raised", RAISED)
    def test_one_that_raises_does_not_hide_the_others(self, raised: type[BaseException]) -> None:
        class Odd(ClientResponseError):
            @property
            def retry_after(self) -> NoReturn:
                raise raised

            response = retry_after

        assert asked(Odd(503, {"Retry-After": "5"})) == timedelta(seconds=5)

    @pytest.mark.parametrize("raised", RAISED)
    def test_values_that_raise_say_nothing(self, raised: type[BaseException]) -> None:
        odd = Hostile(raised)

        assert asked(HTTPStatusError(429, odd)) is None
        assert asked(HTTPStatusError(odd, {"Retry-After": "5"})) is None
        assert asked(HTTPStatusError(429, {"Retry-After": odd})) is None
        assert own(odd) is None

    def test_headers_that_are_none_say_nothing(self) -> None:
        values: list[Any] = [None, 5, "Retry-After: 5", [("Retry-After", "5")], {}]

        assert [each for each in values if asked(HTTPStatusError(429, each)) is not None] == []

    def test_an_error_with_every_attribute_says_nothing(self) -> None:
        error = ValueError()
        error.response = MagicMock()  # type: ignore[attr-defined]  # as in a test of the user's
        error.retry_after = MagicMock()  # type: ignore[attr-defined]  # as in a test of the user's

        assert asked(error) is None

    @given(st.text() | st.binary() | st.integers() | st.floats() | st.timedeltas() | st.none())
    def test_whatever_it_says_the_wait_is_bounded(self, value: Any) -> None:
        for span in (header(value), own(value)):
            assert span is None or timedelta(0) <= span <= LONGEST

    @given(st.datetimes(timezones=st.timezones()))
    def test_whatever_the_date_the_wait_is_bounded(self, then: datetime) -> None:
        span = header(format_datetime(then))

        assert span is None or timedelta(0) <= span <= LONGEST
