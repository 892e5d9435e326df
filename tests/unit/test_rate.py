"""Rate limits: no span sees more than the rate, and nobody waits longer than needed."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sa_outbox import Rate
from sa_outbox.errors import ConfigError
from sa_outbox.policy.rate import Bucket


def begun(rate: Rate, pauses: list[float]) -> list[float]:
    """When events begin of which each is asked for after a pause, and waits if it has to."""
    now, times = 100.0, []
    bucket = Bucket(rate, now)
    for pause in pauses:
        now += pause
        while (wait := bucket.wait(now)) > 0:
            now += wait
        bucket.take()
        times.append(now)
    return times


@given(
    st.integers(1, 20),
    st.floats(0.01, 100),
    st.lists(st.floats(0, 30) | st.just(0.0), min_size=1, max_size=80),
)
def test_no_span_sees_more_than_the_rate(events: int, per: float, pauses: list[float]) -> None:
    times = begun(Rate(events, per=timedelta(seconds=per)), pauses)
    span = timedelta(seconds=per).total_seconds()
    for index, time in enumerate(times):
        assert sum(time <= other < time + span * (1 - 1e-6) for other in times[index:]) <= events


@given(st.integers(1, 50), st.floats(0.1, 10))
def test_in_the_long_run_the_rate_is_used(events: int, per: float) -> None:
    times = begun(Rate(events, per=timedelta(seconds=per)), [0.0] * (events * 20))
    spans = (times[-1] - times[0]) / timedelta(seconds=per).total_seconds()
    assert len(times) / spans >= events / 2


@given(st.lists(st.floats(0, 5), max_size=30))
def test_a_clock_that_goes_back_does_no_harm(moments: list[float]) -> None:
    bucket = Bucket(Rate(2), 0.0)
    for moment in moments:
        assert 0 <= bucket.wait(moment) <= 1.1
        if bucket.wait(moment) == 0:
            bucket.take()


@pytest.mark.parametrize(
    ("events", "per"),
    [
        *[(0, timedelta(1)), (-1, timedelta(1)), (1.5, timedelta(1)), (True, timedelta(1))],
        *[(1, timedelta(0)), (1, timedelta(days=2)), (1, 60)],
    ],
)
def test_what_is_no_rate_is_refused(events: Any, per: Any) -> None:
    with pytest.raises(ConfigError, match="rate"):
        Rate(events, per=per)
