"""When to attempt again."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sa_outbox import RetryPolicy
from sa_outbox.errors import ConfigError

SPANS = st.timedeltas(min_value=timedelta(0))
FACTORS = st.floats(min_value=1, allow_nan=False, allow_infinity=False)
CHANCES = st.floats(min_value=0, max_value=1, exclude_max=True)
ATTEMPTS = st.integers(1, 10**6)


@st.composite
def policies(draw: st.DrawFn, *, jitter: bool | None = None) -> RetryPolicy:
    return RetryPolicy(
        attempts=draw(ATTEMPTS),
        base=draw(SPANS),
        factor=draw(FACTORS),
        maximum=draw(SPANS),
        jitter=draw(st.booleans()) if jitter is None else jitter,
    )


class TestDelay:
    @given(policies(), ATTEMPTS, CHANCES)
    def test_a_delay_is_neither_negative_nor_above_the_maximum(
        self, policy: RetryPolicy, attempt: int, chance: float
    ) -> None:
        delay = policy.delay_after(attempt, chance=chance)

        if delay is not None:
            assert timedelta(0) <= delay <= policy.maximum

    @given(policies(), ATTEMPTS, CHANCES)
    def test_it_gives_up_exactly_at_the_last_attempt(
        self, policy: RetryPolicy, attempt: int, chance: float
    ) -> None:
        delay = policy.delay_after(attempt, chance=chance)

        assert (delay is None) == (attempt >= policy.attempts)

    @given(policies(jitter=False), ATTEMPTS, ATTEMPTS)
    def test_without_jitter_a_later_delay_is_not_shorter(
        self, policy: RetryPolicy, one: int, other: int
    ) -> None:
        delays = [policy.delay_after(each, chance=0.5) for each in sorted((one, other))]
        assume(None not in delays)

        assert delays == sorted(delays)  # type: ignore[type-var]  # None was ruled out above

    @given(policies(jitter=True), ATTEMPTS, CHANCES, CHANCES)
    def test_with_jitter_the_delay_grows_with_the_chance(
        self, policy: RetryPolicy, attempt: int, one: float, other: float
    ) -> None:
        low, high = sorted((one, other))
        shorter = policy.delay_after(attempt, chance=low)
        longer = policy.delay_after(attempt, chance=high)

        assert shorter is None or (longer is not None and shorter <= longer)

    @given(policies(jitter=False), ATTEMPTS, CHANCES, CHANCES)
    def test_without_jitter_chance_does_not_matter(
        self, policy: RetryPolicy, attempt: int, one: float, other: float
    ) -> None:
        assert policy.delay_after(attempt, chance=one) == policy.delay_after(attempt, chance=other)

    def test_each_delay_is_the_factor_times_the_one_before(self) -> None:
        policy = RetryPolicy(
            attempts=6,
            base=timedelta(seconds=2),
            factor=3,
            maximum=timedelta(minutes=1),
            jitter=False,
        )

        assert [policy.delay_after(each, chance=0) for each in range(1, 7)] == [
            timedelta(seconds=2),
            timedelta(seconds=6),
            timedelta(seconds=18),
            timedelta(seconds=54),
            timedelta(minutes=1),
            None,
        ]

    def test_the_chance_of_zero_waits_not_at_all(self) -> None:
        assert RetryPolicy().delay_after(1, chance=0) == timedelta(0)

    def test_one_attempt_means_no_retry(self) -> None:
        assert RetryPolicy(attempts=1).delay_after(1, chance=0.5) is None

    @pytest.mark.parametrize("attempt", [1_000, 1_024, 1_025, 10_000, 999_999])
    def test_very_many_attempts_wait_the_maximum_each(self, attempt: int) -> None:
        policy = RetryPolicy(attempts=10**6, jitter=False)

        assert policy.delay_after(attempt, chance=0.5) == policy.maximum

    @pytest.mark.parametrize("attempt", [1, 1_000])
    def test_a_base_of_zero_never_waits(self, attempt: int) -> None:
        policy = RetryPolicy(attempts=10**6, base=timedelta(0), jitter=False)

        assert policy.delay_after(attempt, chance=0.5) == timedelta(0)

    @pytest.mark.parametrize("attempt", [1_026, 10**5])
    def test_a_base_of_zero_never_waits_after_very_many_attempts(self, attempt: int) -> None:
        policy = RetryPolicy(attempts=10**6, base=timedelta(0), jitter=False)

        assert policy.delay_after(attempt, chance=0.5) == timedelta(0)


class TestSchedule:
    @given(st.lists(SPANS, max_size=20), st.integers(1, 30), CHANCES)
    def test_the_schedule_is_followed_and_then_it_gives_up(
        self, schedule: list[timedelta], attempt: int, chance: float
    ) -> None:
        policy = RetryPolicy(schedule=tuple(schedule))

        expected = schedule[attempt - 1] if attempt <= len(schedule) else None
        assert policy.attempts == len(schedule) + 1
        assert policy.delay_after(attempt, chance=chance) == expected

    def test_a_list_is_taken_as_a_copy(self) -> None:
        spans = [timedelta(1)]
        policy = RetryPolicy(schedule=spans)  # type: ignore[arg-type]  # people will
        spans.clear()

        assert policy.schedule == (timedelta(1),)


class TestFinalErrors:
    def test_only_the_named_errors_and_their_subclasses_are_final(self) -> None:
        policy = RetryPolicy(final_on=(LookupError, ZeroDivisionError))

        assert policy.gives_up_on(KeyError())
        assert policy.gives_up_on(ZeroDivisionError())
        assert not policy.gives_up_on(ValueError())
        assert not RetryPolicy().gives_up_on(KeyError())


class TestBadPolicies:
    @pytest.mark.parametrize(
        "options",
        [
            {"attempts": 0},
            {"attempts": -1},
            {"attempts": True},
            {"attempts": 1.5},
            {"attempts": "5"},
            {"attempts": None},
            {"factor": 0.5},
            {"factor": -2},
            {"factor": float("nan")},
            {"base": timedelta(-1)},
            {"base": 1},
            {"base": None},
            {"maximum": timedelta(microseconds=-1)},
            {"maximum": 300},
            {"schedule": [timedelta(1), timedelta(-1)]},
            {"schedule": [1]},
        ],
        ids=str,
    )
    def test_it_is_refused_when_it_is_made(self, options: dict[str, Any]) -> None:
        with pytest.raises(ConfigError, match=next(iter(options))):
            RetryPolicy(**options)

    @pytest.mark.parametrize(
        "options",
        [
            {"factor": "2"},
            {"factor": None},
            {"factor": float("inf")},
            {"schedule": 5},
            {"schedule": timedelta(1)},
            {"final_on": ("ValueError",)},
            {"final_on": "ValueError"},
            {"jitter": "no"},
        ],
        ids=str,
    )
    def test_it_is_refused_however_wrong(self, options: dict[str, Any]) -> None:
        with pytest.raises(ConfigError, match=next(iter(options))):
            RetryPolicy(**options)

    def test_it_can_not_be_changed_afterwards(self) -> None:
        with pytest.raises(AttributeError):
            RetryPolicy().attempts = 3  # type: ignore[misc]  # that is the point
