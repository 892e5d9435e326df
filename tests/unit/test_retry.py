"""When to attempt again."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sa_outbox import Reject, RetryLater, RetryPolicy
from sa_outbox.errors import ConfigError, InvalidEvent, PayloadTooLarge
from sa_outbox.policy.retry import PRESETS

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
        policy = RetryPolicy(schedule=spans)
        spans.clear()

        assert policy.schedule == (timedelta(1),)
        assert policy == RetryPolicy(schedule=(timedelta(1),))
        assert hash(policy) == hash(RetryPolicy(schedule=(timedelta(1),)))

    def test_a_wait_of_nothing_is_a_wait_and_not_the_end(self) -> None:
        schedule = (timedelta(0), timedelta(seconds=30), timedelta(minutes=5))
        policy = RetryPolicy(schedule=schedule)

        waits = [policy.delay_after(attempt, chance=0.5) for attempt in range(1, 5)]

        assert waits == [*schedule, None]

    @pytest.mark.parametrize("wrong", [30, 0, 0.5, "30 s", None], ids=repr)
    def test_a_number_is_refused_with_its_place_and_what_to_write(self, wrong: Any) -> None:
        with pytest.raises(
            ConfigError, match=r"schedule\[1\] must be a timedelta, like timedelta\("
        ):
            RetryPolicy(schedule=[timedelta(0), wrong])


class Root(Exception):
    pass


class Branch(Root):
    pass


class Leaf(Branch):
    pass


class TestRetriedErrors:
    def test_only_the_named_errors_and_their_subclasses_are_attempted_again(self) -> None:
        policy = RetryPolicy(retry_on=(Branch, ConnectionError))

        assert not policy.gives_up_on(Leaf())
        assert not policy.gives_up_on(Branch())
        assert not policy.gives_up_on(ConnectionResetError())
        assert policy.gives_up_on(Root())
        assert policy.gives_up_on(ValueError())

    def test_none_named_at_all_means_that_no_error_is(self) -> None:
        assert RetryPolicy(retry_on=()).gives_up_on(ValueError())

    def test_unless_named_every_error_is(self) -> None:
        assert not RetryPolicy().gives_up_on(ValueError())

    @pytest.mark.parametrize(
        ("retry_on", "final_on", "is_final"),
        [
            (Root, Branch, {Root: False, Branch: True, Leaf: True}),
            (Branch, Root, {Root: True, Branch: False, Leaf: False}),
            (Leaf, Exception, {Root: True, Branch: True, Leaf: False}),
            (Exception, Leaf, {Root: False, Branch: False, Leaf: True}),
        ],
    )
    def test_the_more_specific_class_decides(
        self,
        retry_on: type[Exception],
        final_on: type[Exception],
        is_final: dict[type[Exception], bool],
    ) -> None:
        policy = RetryPolicy(retry_on=(retry_on,), final_on=(final_on,))

        assert {cls: policy.gives_up_on(cls()) for cls in is_final} == is_final

    def test_of_two_parents_the_one_named_first_is_the_more_specific(self) -> None:
        class RetryFirst(ConnectionError, LookupError):
            pass

        class FinalFirst(LookupError, ConnectionError):
            pass

        policy = RetryPolicy(retry_on=(ConnectionError,), final_on=(LookupError,))

        assert not policy.gives_up_on(RetryFirst())
        assert policy.gives_up_on(FinalFirst())

    def test_lists_are_taken_as_copies(self) -> None:
        retried: list[type[BaseException]] = [Root]
        final: list[type[BaseException]] = [Leaf]
        policy = RetryPolicy(retry_on=retried, final_on=final)
        retried.clear()
        final.clear()

        assert (policy.retry_on, policy.final_on) == ((Root,), (Leaf,))

    @pytest.mark.parametrize(
        "options",
        [
            {"retry_on": ValueError},
            {"retry_on": (ValueError(),)},
            {"retry_on": ("ValueError",)},
            {"retry_on": (int,)},
            {"retry_on": callable},
            {"retry_on": (Reject,)},
            {"final_on": (RetryLater,)},
            {"retry_on": (Root, Leaf), "final_on": (Leaf,)},
        ],
        ids=str,
    )
    def test_what_can_not_be_meant_is_refused(self, options: dict[str, Any]) -> None:
        with pytest.raises(ConfigError, match=next(iter(options))):
            RetryPolicy(**options)


class TestPresets:
    @pytest.mark.parametrize(
        ("name", "attempts", "minutes"),
        [
            ("notification", 10, 30),
            ("planning", 3, 2),
            ("export", 5, 10),
            ("import", 5, 10),
            ("maintenance", 5, 5),
            ("audit", 5, 5),
            ("default", 5, 5),
        ],
    )
    def test_each_has_its_figures(self, name: str, attempts: int, minutes: int) -> None:
        policy = RetryPolicy.preset(name)

        assert policy is PRESETS[name]
        assert (policy.attempts, policy.maximum) == (attempts, timedelta(minutes=minutes))
        assert (policy.base, policy.jitter) == (timedelta(seconds=5), True)

    def test_there_are_no_others(self) -> None:
        assert len(PRESETS) == 7

    @pytest.mark.parametrize("name", PRESETS)
    def test_what_is_not_valid_or_not_permitted_is_final(self, name: str) -> None:
        policy = PRESETS[name]

        assert policy.gives_up_on(InvalidEvent("no", field="key"))
        assert policy.gives_up_on(PayloadTooLarge(2, 1))
        assert policy.gives_up_on(PermissionError())

    @pytest.mark.parametrize("name", PRESETS)
    @pytest.mark.parametrize("error", [ValueError, TimeoutError, ConnectionError, OSError])
    def test_what_may_pass_is_attempted_again(self, name: str, error: type[Exception]) -> None:
        assert not PRESETS[name].gives_up_on(error())

    def test_one_can_be_changed_for_a_listener_and_stays_as_it_is_for_others(self) -> None:
        changed = replace(RetryPolicy.preset("export"), attempts=2)

        assert changed.attempts == 2
        assert RetryPolicy.preset("export").attempts == 5

    def test_replace_changes_some_fields_of_a_preset_and_keeps_the_others(self) -> None:
        export = RetryPolicy.preset("export")

        changed = export.replace(final_on=[*export.final_on, KeyError])

        assert changed.gives_up_on(KeyError())
        assert changed.gives_up_on(PermissionError())
        assert changed.replace(final_on=export.final_on) == export

    @pytest.mark.parametrize(
        "changes",
        [
            {"attempts": 0},
            {"factor": 0.5},
            {"final_on": KeyError},
            {"final_on": (RetryLater,)},
            {"base": 5},
            {"retry_on": (PermissionError,)},
        ],
        ids=repr,
    )
    def test_replace_refuses_what_the_constructor_refuses(self, changes: Any) -> None:
        with pytest.raises(ConfigError):
            RetryPolicy.preset("export").replace(**changes)

    def test_replace_of_a_field_that_does_not_exist_is_a_type_error(self) -> None:
        with pytest.raises(TypeError, match="atempts"):
            RetryPolicy().replace(atempts=3)  # type: ignore[call-arg]  # that is the point

    def test_replace_does_not_ignore_attempts_beside_a_schedule(self) -> None:
        scheduled = RetryPolicy(schedule=(timedelta(0), timedelta(1)))

        with pytest.raises(ConfigError, match="schedule of 2 waits"):
            scheduled.replace(attempts=5)
        assert scheduled.replace(attempts=5, schedule=None).attempts == 5
        assert scheduled.replace(attempts=3, jitter=False).attempts == 3

    @pytest.mark.parametrize("name", ["exports", "", None, ["export"]], ids=repr)
    def test_a_name_that_is_none_is_refused_with_those_that_are(self, name: Any) -> None:
        with pytest.raises(ConfigError, match="there are notification, planning"):
            RetryPolicy.preset(name)

    def test_nobody_can_add_one_for_everybody(self) -> None:
        with pytest.raises(TypeError):
            PRESETS["mine"] = RetryPolicy()  # type: ignore[index]  # that is the point


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
