"""What an attempt leads to."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, NoReturn, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sa_outbox import Reject, RetryLater, RetryPolicy
from sa_outbox.database.tables import STATES
from sa_outbox.errors import HandlerTimeout, OutboxError, Undeliverable
from sa_outbox.policy.delivery import (
    DONE,
    LONGEST,
    OUTCOMES,
    TRANSITIONS,
    Dead,
    Decision,
    Outcome,
    Retry,
    State,
    decide,
    is_legal,
)
from sa_outbox.policy.retry_after import LONGEST as DAY_SECONDS

ATTEMPTS = st.integers(1, 30)
CHANCES = st.floats(0, 1, exclude_max=True)
POLICIES = st.builds(
    RetryPolicy,
    attempts=st.integers(1, 20),
    base=st.timedeltas(timedelta(0), timedelta(hours=1)),
    jitter=st.booleans(),
)
NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
STEADY = RetryPolicy(attempts=3, base=timedelta(seconds=2), jitter=False)


def outcome_of(
    error: BaseException | None, *, attempt: int = 1, policy: RetryPolicy = STEADY
) -> Decision:
    return decide(error, attempt=attempt, policy=policy, chance=0.5, now=NOW)


class TestDecision:
    @given(POLICIES, ATTEMPTS, CHANCES)
    def test_a_handler_that_returned_is_done(
        self, policy: RetryPolicy, attempt: int, chance: float
    ) -> None:
        assert decide(None, attempt=attempt, policy=policy, chance=chance, now=NOW) is DONE

    @given(POLICIES, ATTEMPTS, CHANCES)
    def test_an_error_is_attempted_again_when_and_as_long_as_the_policy_says(
        self, policy: RetryPolicy, attempt: int, chance: float
    ) -> None:
        delay = policy.delay_after(attempt, chance=chance)

        outcome = decide(ValueError(), attempt=attempt, policy=policy, chance=chance, now=NOW)

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
        outcome = decide(Reject("no"), attempt=attempt, policy=policy, chance=chance, now=NOW)

        assert outcome == Dead("rejected")

    def test_what_a_receiver_never_accepts_is_rejected_at_the_first_attempt(self) -> None:
        assert outcome_of(Undeliverable("too large")) == Dead("rejected")

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

        outcome = decide(error, attempt=attempt, policy=policy, chance=chance, now=NOW)

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

    @pytest.mark.parametrize(
        "policy",
        [
            RetryPolicy(attempts=3, final_on=(Exception,)),
            RetryPolicy(attempts=3, final_on=(OutboxError,)),
            RetryPolicy(attempts=3, retry_on=()),
            RetryPolicy(attempts=3, retry_on=(OSError,), final_on=(BaseException,)),
        ],
        ids=["all final", "ours final", "none retried", "all but some final"],
    )
    def test_it_is_attempted_again_whatever_the_policy_finds_final(
        self, policy: RetryPolicy
    ) -> None:
        error = RetryLater(delay=timedelta(seconds=7))

        assert outcome_of(error, policy=policy) == Retry(timedelta(seconds=7))
        assert outcome_of(error, attempt=3, policy=policy) == Dead("attempts")

    def test_a_subclass_that_forgot_to_call_init_is_one_without_a_delay(self) -> None:
        class Busy(RetryLater):
            def __init__(self) -> None:
                pass

        assert outcome_of(Busy()) == Retry(timedelta(seconds=2))

    @pytest.mark.parametrize("raised", [RuntimeError, SystemExit, asyncio.CancelledError])
    def test_a_delay_that_raises_is_none(self, raised: type[BaseException]) -> None:
        class Odd(RetryLater):
            @property
            def delay(self) -> NoReturn:
                raise raised

            @delay.setter
            def delay(self, value: object) -> None: ...

        assert outcome_of(Odd()) == Retry(timedelta(seconds=2))

    def test_a_delay_that_became_something_else_is_none(self) -> None:
        changed = RetryLater(delay=timedelta(1))
        changed.delay = 5  # type: ignore[assignment]  # that is the point

        assert outcome_of(changed) == Retry(timedelta(seconds=2))

    def test_it_may_be_years_but_not_more_than_ten(self) -> None:
        years = timedelta(days=9 * 365)

        assert outcome_of(RetryLater(delay=years)) == Retry(years)
        assert outcome_of(RetryLater(delay=timedelta.max)) == Retry(timedelta(days=3650))

    def test_the_delay_of_any_other_error_means_nothing(self) -> None:
        error = ValueError()
        error.delay = timedelta(hours=1)  # type: ignore[attr-defined]  # somebody's

        assert outcome_of(error) == Retry(timedelta(seconds=2))


class TestRetryOn:
    def test_what_is_not_named_is_given_up_at_the_first_attempt(self) -> None:
        policy = RetryPolicy(attempts=3, retry_on=(OSError,), base=timedelta(0))

        assert outcome_of(ConnectionError(), policy=policy) == Retry(timedelta(0))
        assert outcome_of(ConnectionError(), attempt=3, policy=policy) == Dead("attempts")
        assert outcome_of(ValueError(), policy=policy) == Dead("final")

    def test_reject_is_rejected_also_when_everything_is_retried(self) -> None:
        policy = RetryPolicy(retry_on=(BaseException,))

        assert outcome_of(Reject("no"), policy=policy) == Dead("rejected")


class Busy(Exception):
    def __init__(self, retry_after: object) -> None:
        self.retry_after = retry_after


class TestRetryAfter:
    @given(POLICIES, ATTEMPTS, CHANCES, st.timedeltas(timedelta(0)))
    def test_the_delay_is_the_longer_of_the_policys_and_what_is_asked_for(
        self, policy: RetryPolicy, attempt: int, chance: float, asked: timedelta
    ) -> None:
        delay = policy.delay_after(attempt, chance=chance)

        outcome = decide(Busy(asked), attempt=attempt, policy=policy, chance=chance, now=NOW)

        assert outcome == (
            Dead("attempts") if delay is None else Retry(max(delay, min(asked, DAY_SECONDS)))
        )

    def test_a_policy_that_waits_longer_than_a_day_still_does(self) -> None:
        policy = RetryPolicy(schedule=(timedelta(days=3),))

        assert outcome_of(Busy(timedelta(days=9)), policy=policy) == Retry(timedelta(days=3))

    def test_the_header_of_an_answer_is_honoured(self) -> None:
        error = ValueError()
        headers = {"Retry-After": "Sat, 31 Jan 2026 12:00:40 GMT"}
        error.response = SimpleNamespace(status_code=429, headers=headers)  # type: ignore[attr-defined]  # as httpx does

        assert outcome_of(error) == Retry(timedelta(seconds=40))

    def test_an_error_that_is_final_stays_final(self) -> None:
        assert outcome_of(Busy(5), policy=RetryPolicy(final_on=(Busy,))) == Dead("final")
        assert outcome_of(Busy(5), policy=RetryPolicy(retry_on=(OSError,))) == Dead("final")

    def test_the_delay_of_retry_later_comes_first(self) -> None:
        error = RetryLater(delay=timedelta(seconds=1))
        error.retry_after = 60  # type: ignore[attr-defined]  # somebody's
        without = RetryLater()
        without.retry_after = 60  # type: ignore[attr-defined]  # somebody's

        assert outcome_of(error) == Retry(timedelta(seconds=1))
        assert outcome_of(without) == Retry(timedelta(minutes=1))


ODD_VALUES: st.SearchStrategy[object] = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=40)
    | st.binary(max_size=40)
    | st.timedeltas()
    | st.datetimes()
    | st.lists(st.integers(), max_size=2)
    | st.sampled_from([429, 503, HandlerTimeout, Exception, "Retry-After"])
)
ODD_ANSWERS = st.builds(
    SimpleNamespace,
    status_code=ODD_VALUES,
    status=ODD_VALUES,
    headers=st.dictionaries(st.sampled_from(["Retry-After", "retry-after", "x"]), ODD_VALUES)
    | ODD_VALUES,
)
CLASSES: list[type[BaseException]] = [
    ValueError,
    KeyError,
    OSError,
    ConnectionError,
    TimeoutError,
    GeneratorExit,
    SystemExit,
    asyncio.CancelledError,
    HandlerTimeout,
    RetryLater,
    OutboxError,
]


@st.composite
def odd_errors(draw: st.DrawFn) -> BaseException:
    """Of any class, with any attributes."""
    error: BaseException = draw(st.sampled_from([*CLASSES, Reject]))("it failed")
    for name in draw(
        st.sets(st.sampled_from(["retry_after", "response", "status", "headers", "delay", "code"]))
    ):
        setattr(error, name, draw(ODD_ANSWERS | ODD_VALUES))
    return error


@st.composite
def any_policies(draw: st.DrawFn) -> RetryPolicy:
    spans = st.timedeltas(timedelta(0))
    named = st.lists(st.sampled_from(CLASSES), max_size=3, unique=True)
    retry_on = draw(st.none() | named)
    final_on = [
        each
        for each in draw(named)
        if each not in (retry_on or ()) and not issubclass(each, RetryLater)
    ]
    return RetryPolicy(
        attempts=draw(st.integers(1, 20)),
        base=draw(spans),
        factor=draw(st.floats(1, 1e300)),
        maximum=draw(spans),
        jitter=draw(st.booleans()),
        schedule=draw(st.none() | st.lists(spans, max_size=5)),
        retry_on=retry_on,
        final_on=final_on,
    )


class TestEveryError:
    @given(odd_errors(), any_policies(), ATTEMPTS, CHANCES)
    def test_there_is_a_decision_and_it_respects_the_policy(
        self, error: BaseException, policy: RetryPolicy, attempt: int, chance: float
    ) -> None:
        outcome = decide(error, attempt=attempt, policy=policy, chance=chance, now=NOW)

        match outcome:
            case Retry(delay):
                assert attempt < policy.attempts
                assert timedelta(0) <= delay <= LONGEST
                own = policy.delay_after(attempt, chance=chance)
                assert own is not None
                assert isinstance(error, RetryLater) or delay <= max(own, DAY_SECONDS)
                assert isinstance(error, RetryLater) or not policy.gives_up_on(error)
            case Dead("attempts"):
                assert attempt >= policy.attempts
            case Dead("rejected"):
                assert isinstance(error, Reject)
            case Dead(reason):
                assert reason == "final"
                assert policy.gives_up_on(error)
                assert not isinstance(error, (Reject, RetryLater))
            case _:
                pytest.fail(f"{outcome} after an error")


ENDS = {"done", "dead", "cancelled"}


class TestTransitions:
    def test_every_state_is_in_the_table_and_no_other(self) -> None:
        assert set(TRANSITIONS) == set(get_args(State))
        assert set().union(*TRANSITIONS.values()) <= set(TRANSITIONS)

    def test_only_done_dead_and_cancelled_are_ends(self) -> None:
        assert {state for state, after in TRANSITIONS.items() if not after} == ENDS

    @pytest.mark.parametrize("state", TRANSITIONS)
    def test_every_state_can_be_reached_and_left(self, state: State) -> None:
        assert state in reached("waiting")
        assert state in ENDS or reached(state) >= ENDS

    def test_what_is_done_was_running(self) -> None:
        for state, after in TRANSITIONS.items():
            assert state == "running" or "done" not in after

    def test_every_outcome_of_an_attempt_is_a_legal_move(self) -> None:
        """But for one that waits behind another: it is not attempted."""
        legal = {each for each in get_args(Outcome) if is_legal("running", each)}

        assert legal == set(get_args(Outcome)) - {"behind"}
        assert set(OUTCOMES) == set(get_args(Outcome))

    def test_what_has_ended_stays_as_it_is(self) -> None:
        ends = {"done": {"done"}, "dead": {"dead"}, "cancelled": {"cancel", "withdraw"}}

        for state, outcomes in ends.items():
            legal = {each for each in get_args(Outcome) if is_legal(state, each)}  # type: ignore[arg-type]  # of the table
            assert legal == outcomes

    def test_states_with_a_row_are_those_the_table_allows(self) -> None:
        assert {"scheduled", "parked", "behind", "cancelled"} == set(STATES)


def reached(state: State) -> set[State]:
    """All states that can follow *state*, and itself."""
    found, new = {state}, {state}
    while new:
        new = set[State]().union(*(TRANSITIONS[each] for each in new)) - found
        found |= new
    return found
