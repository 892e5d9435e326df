"""What an attempt leads to."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sa_outbox import Reject, RetryLater, RetryPolicy
from sa_outbox.delivery import DONE, TRANSITIONS, Dead, Outcome, Retry, State, decide
from sa_outbox.errors import HandlerTimeout, OutboxError
from sa_outbox.tables import STATES

ATTEMPTS = st.integers(1, 30)
CHANCES = st.floats(0, 1, exclude_max=True)
POLICIES = st.builds(
    RetryPolicy,
    attempts=st.integers(1, 20),
    base=st.timedeltas(timedelta(0), timedelta(hours=1)),
    jitter=st.booleans(),
)
STEADY = RetryPolicy(attempts=3, base=timedelta(seconds=2), jitter=False)


def outcome_of(
    error: BaseException | None, *, attempt: int = 1, policy: RetryPolicy = STEADY
) -> Outcome:
    return decide(error, attempt=attempt, policy=policy, chance=0.5)


class TestDecision:
    @given(POLICIES, ATTEMPTS, CHANCES)
    def test_a_handler_that_returned_is_done(
        self, policy: RetryPolicy, attempt: int, chance: float
    ) -> None:
        assert decide(None, attempt=attempt, policy=policy, chance=chance) is DONE

    @given(POLICIES, ATTEMPTS, CHANCES)
    def test_an_error_is_attempted_again_when_and_as_long_as_the_policy_says(
        self, policy: RetryPolicy, attempt: int, chance: float
    ) -> None:
        delay = policy.delay_after(attempt, chance=chance)

        outcome = decide(ValueError(), attempt=attempt, policy=policy, chance=chance)

        assert outcome == (Dead("attempts") if delay is None else Retry(delay))

    @pytest.mark.parametrize(
        "error",
        [
            HandlerTimeout("late"),
            asyncio.CancelledError(),
            GeneratorExit(),
            SystemExit(3),
            BaseExceptionGroup("many", [ValueError()]),
            OutboxError("ours"),
        ],
        ids=lambda error: type(error).__name__,
    )
    def test_whatever_it_is_it_is_a_failure(self, error: BaseException) -> None:
        assert outcome_of(error) == Retry(timedelta(seconds=2))
        assert outcome_of(error, attempt=3) == Dead("attempts")


class TestReject:
    @given(POLICIES, ATTEMPTS, CHANCES)
    def test_it_is_never_attempted_again(
        self, policy: RetryPolicy, attempt: int, chance: float
    ) -> None:
        outcome = decide(Reject("no"), attempt=attempt, policy=policy, chance=chance)

        assert outcome == Dead("rejected")

    def test_it_stays_rejected_when_its_class_is_final_too(self) -> None:
        policy = RetryPolicy(final_on=(OutboxError,))

        assert outcome_of(Reject("no"), policy=policy) == Dead("rejected")


class TestFinalErrors:
    def test_they_are_given_up_at_the_first_attempt(self) -> None:
        policy = RetryPolicy(final_on=(LookupError,))

        assert outcome_of(KeyError("x"), policy=policy) == Dead("final")
        assert isinstance(outcome_of(ValueError("x"), policy=policy), Retry)

    def test_at_the_last_attempt_the_error_is_the_reason_and_not_the_count(self) -> None:
        policy = RetryPolicy(attempts=1, final_on=(LookupError,))

        assert outcome_of(KeyError("x"), policy=policy) == Dead("final")

    def test_an_error_that_was_caused_by_one_is_not_one(self) -> None:
        error = ValueError()
        error.__cause__ = KeyError()

        outcome = outcome_of(error, policy=RetryPolicy(final_on=(LookupError,)))

        assert isinstance(outcome, Retry)


class TestRetryLater:
    @given(POLICIES, ATTEMPTS, CHANCES, st.timedeltas(timedelta(0), timedelta(days=30)))
    def test_its_delay_stands_in_for_the_policys(
        self, policy: RetryPolicy, attempt: int, chance: float, delay: timedelta
    ) -> None:
        error = RetryLater(delay=delay)

        outcome = decide(error, attempt=attempt, policy=policy, chance=chance)

        expected = Retry(delay) if attempt < policy.attempts else Dead("attempts")
        assert outcome == expected

    def test_without_a_delay_the_policy_has_its_say(self) -> None:
        assert outcome_of(RetryLater("soon")) == Retry(timedelta(seconds=2))

    def test_no_delay_at_all_is_a_delay(self) -> None:
        assert outcome_of(RetryLater(delay=timedelta(0))) == Retry(timedelta(0))

    def test_a_time_that_has_passed_means_at_once(self) -> None:
        assert outcome_of(RetryLater(delay=timedelta(-1))) == Retry(timedelta(0))

    @pytest.mark.parametrize("delay", [5, 0.5, "soon"], ids=repr)
    def test_a_delay_that_is_no_timedelta_is_a_failed_attempt_and_no_more(self, delay: Any) -> None:
        """Refused where it is made, or taken for an error like any other."""
        error: Exception
        try:
            error = RetryLater(delay=delay)
        except (TypeError, OutboxError) as refused:
            error = refused

        assert isinstance(outcome_of(error), Retry)

    def test_it_does_not_go_on_for_ever(self) -> None:
        assert outcome_of(RetryLater(delay=timedelta(1)), attempt=3) == Dead("attempts")


class TestTransitions:
    def test_every_state_is_in_the_table_and_no_other(self) -> None:
        assert set(TRANSITIONS) == set(get_args(State))
        assert set().union(*TRANSITIONS.values()) <= set(TRANSITIONS)

    def test_only_done_and_dead_are_ends(self) -> None:
        assert {state for state, after in TRANSITIONS.items() if not after} == {"done", "dead"}

    @pytest.mark.parametrize("state", TRANSITIONS)
    def test_every_state_can_be_reached_and_left(self, state: State) -> None:
        assert state in reached("waiting")
        assert state in ("done", "dead") or reached(state) >= {"done", "dead"}

    def test_what_is_done_or_dead_was_running(self) -> None:
        for state, after in TRANSITIONS.items():
            assert state == "running" or not after & {"done", "dead"}

    def test_states_with_a_row_are_those_the_table_allows(self) -> None:
        assert {"scheduled", "parked", "behind"} <= set(STATES)


def reached(state: State) -> set[State]:
    """All states that can follow *state*, and itself."""
    found, new = {state}, {state}
    while new:
        new = set[State]().union(*(TRANSITIONS[each] for each in new)) - found
        found |= new
    return found
