"""Checks that settings, policies and declarations share."""

from __future__ import annotations

from datetime import timedelta

import pytest

from sa_outbox.errors import ConfigError
from sa_outbox.policy.checks import ONE_DAY, TEN_YEARS, check_span, did_you_mean

MOMENT = timedelta(microseconds=1)


@pytest.mark.parametrize("most", [None, ONE_DAY, TEN_YEARS])
@pytest.mark.parametrize("span", [timedelta(0), -MOMENT, 5, 1.5, "5 s", None])
def test_what_is_no_span_above_zero_is_refused(span: object, most: timedelta | None) -> None:
    with pytest.raises(ConfigError, match=r"^timeout must be a timedelta above zero.*, not "):
        check_span("timeout", span, most=most)


@pytest.mark.parametrize(("most", "words"), [(ONE_DAY, "a day"), (TEN_YEARS, "ten years")])
def test_the_longest_span_is_accepted_and_nothing_beyond(most: timedelta, words: str) -> None:
    check_span("timeout", MOMENT, most=most)
    check_span("timeout", most, most=most)
    with pytest.raises(ConfigError, match=f"above zero and up to {words}, not "):
        check_span("timeout", most + MOMENT, most=most)


def test_none_is_a_span_where_it_is_said_so() -> None:
    check_span("timeout", None, most=ONE_DAY, or_none=True)
    with pytest.raises(ConfigError, match="up to a day, or None, not "):
        check_span("timeout", timedelta(0), most=ONE_DAY, or_none=True)


def test_a_name_that_is_near_is_proposed_and_no_other() -> None:
    assert did_you_mean("outbx", ["inbox", "outbox"]) == "; did you mean 'outbox'?"
    assert did_you_mean("something", ["inbox", "outbox"]) == ""
