"""From what a handler raised to what is to be written, and what is told of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from sa_outbox import Reject, RetryPolicy
from sa_outbox.consumer.fault.suspects import Suspects
from sa_outbox.consumer.handler.deadline import Interrupted
from sa_outbox.consumer.handler.delivery import InFlight
from sa_outbox.consumer.settle.outcome import Outcomes
from sa_outbox.declare.listener import Listener
from sa_outbox.observe import (
    AttemptFailed,
    BatchSettled,
    DeadLettered,
    DeliverySettled,
    Observation,
    Observers,
    SettledGroup,
)
from sa_outbox.policy.delivery import Outcome
from sa_outbox.policy.order import Order


async def handler(event: Any) -> None:
    raise NotImplementedError


class Bench:
    def __init__(self, order: Order = "key", *, redact: Any = None, observed: bool = True) -> None:
        self.told: list[Observation] = []
        self.observers = observers = Observers((self.told.append,) if observed else ())
        context: Any = SimpleNamespace(
            redact=redact, emit=observers.emit, observers=observers, suspects=Suspects()
        )
        retry = RetryPolicy(attempts=3, jitter=False)
        listener = Listener(name="l", handler=handler, on=("*",), order=order, retry=retry)
        self.outcomes = Outcomes(context, listener)


def make_item(*, attempts: int = 0, state: Any = "", outcome: Outcome = "done") -> InFlight:
    item = InFlight(
        (7, UUID(int=7), "t", "k", None, "1", "{}"), "k", attempts=attempts, state=state
    )
    item.outcome = outcome
    return item


class TestCancelled:
    @pytest.mark.parametrize(("has_begun", "attempts"), [(True, 2), (False, 1)])
    def test_one_that_was_interrupted_has_not_failed(self, has_begun: bool, attempts: int) -> None:
        bench = Bench("none")
        item = make_item(attempts=1)

        bench.outcomes.decide(item, Interrupted(has_begun=has_begun))
        bench.outcomes.emit([item])

        assert (item.outcome, item.attempts, item.failure) == ("cancel", attempts, None)
        (told,) = bench.told
        assert isinstance(told, DeliverySettled)
        assert told.outcome == "cancelled"

    def test_one_that_fails_after_the_request_is_not_attempted_again(self) -> None:
        bench = Bench("none")
        item = make_item()
        item.cancel_requested = True

        bench.outcomes.decide(item, ValueError("no"))

        assert (item.outcome, item.attempts) == ("cancel", 1)
        assert item.failure is not None

    def test_one_that_is_done_all_the_same_is_done(self) -> None:
        item = make_item()
        item.cancel_requested = True

        Bench("none").outcomes.decide(item, None)

        assert item.outcome == "done"


class TestOutcomes:
    def test_one_that_returned_is_done(self) -> None:
        bench = Bench()
        item = make_item(attempts=1, outcome="park")

        bench.outcomes.decide(item, None)

        assert (item.outcome, item.attempts, item.failure) == ("done", 2, None)
        assert bench.told == []

    @pytest.mark.parametrize(
        ("order", "state", "outcome"),
        [
            ("key", "", "park"),
            ("key", "parked", "park"),
            ("key", "behind", "park"),
            ("key", "scheduled", "schedule"),
            ("total", "", "hold"),
            ("total", "parked", "park"),
            ("total", "scheduled", "schedule"),
        ],
    )
    def test_one_that_failed_waits_where_it_came_from(
        self, order: Order, state: str, outcome: Outcome
    ) -> None:
        item = make_item(state=state)

        Bench(order).outcomes.decide(item, ValueError("no"))

        assert (item.outcome, item.attempts, item.delay) == (outcome, 1, 1.0)
        assert item.failure is not None
        assert (item.failure.message, item.failure.attempt) == ("no", 1)

    @pytest.mark.parametrize("order", ["key", "total"])
    @pytest.mark.parametrize(
        ("attempts", "error", "reason"),
        [(2, ValueError(), "attempts"), (0, Reject("no"), "rejected")],
        ids=["the last attempt", "rejected"],
    )
    def test_one_that_is_given_up_is_dead(
        self, order: Order, attempts: int, error: Exception, reason: str
    ) -> None:
        bench = Bench(order)
        item = make_item(attempts=attempts)

        bench.outcomes.decide(item, error)

        assert (item.outcome, item.reason) == ("dead", reason)

    def test_one_that_took_the_process_with_it_is_dead(self) -> None:
        item = make_item(attempts=1)

        Bench().outcomes.convict(item, 3)

        assert (item.outcome, item.reason, item.crashes) == ("dead", "crashes", 3)
        assert item.failure is not None
        # It may have been cut off as well: nobody says that it died.
        assert item.failure.message.startswith("3 times a process that handled nothing but this")
        assert "cut off" in item.failure.message

    def test_the_users_function_takes_out_what_must_not_be_kept(self) -> None:
        item = make_item()

        Bench(redact=lambda text: "gone").outcomes.decide(item, ValueError("card 4111"))

        assert item.failure is not None
        assert item.failure.message == "gone"


class TestTelling:
    def test_a_failure_is_told_at_once_with_the_time_of_the_next_attempt(self) -> None:
        bench = Bench()
        item = make_item()

        bench.outcomes.decide(item, ValueError("no"))

        assert item.failure is not None
        assert bench.told == [AttemptFailed("l", UUID(int=7), "t", 7, 1, item.failure, 1.0)]

    def test_after_the_last_there_is_no_next(self) -> None:
        bench = Bench()

        bench.outcomes.decide(make_item(), Reject("no"))

        assert isinstance(bench.told[0], AttemptFailed)
        assert bench.told[0].retry_in is None

    @pytest.mark.parametrize(
        ("outcome", "observed"),
        [("done", "done"), ("park", "retry"), ("hold", "retry"), ("dead", "dead")],
    )
    def test_what_is_committed_is_told(self, outcome: Outcome, observed: Any) -> None:
        bench = Bench()

        bench.outcomes.emit([make_item(attempts=1, outcome=outcome)])

        assert bench.told[0] == DeliverySettled("l", UUID(int=7), "t", 7, 1, observed, 0.0)
        dead = [DeadLettered("l", UUID(int=7), "t", 7, 1, "attempts")]
        assert bench.told[1:] == (dead if outcome == "dead" else [])

    def test_a_dead_letter_is_told_with_what_it_was_given_up_for(self) -> None:
        bench = Bench()
        item = make_item()
        bench.outcomes.decide(item, Reject("no"))

        bench.outcomes.emit([item])

        (dead,) = [each for each in bench.told if isinstance(each, DeadLettered)]
        assert dead.failure is item.failure is not None

    def test_a_batch_is_told_as_one_by_type_attempt_and_outcome(self) -> None:
        told: list[Observation] = []

        class Batched:
            wants_batches = True

            def __call__(self, observation: Observation) -> None:
                told.append(observation)

        bench = Bench()
        bench.observers.add(Batched())
        outcomes: list[Outcome] = ["done", "done", "park", "schedule", "behind", "dead"]
        items = [make_item(attempts=1, outcome=each) for each in outcomes]
        for seconds, item in enumerate(items):
            item.seconds = float(seconds)
        bench.outcomes.emit(items)

        groups = (
            SettledGroup("t", 1, "done", [0.0, 1.0]),
            SettledGroup("t", 1, "retry", [2.0]),
            SettledGroup("t", 1, "dead", [5.0]),
        )
        assert told[0] == BatchSettled("l", groups)
        assert told[1:] == [DeadLettered("l", UUID(int=7), "t", 7, 1, "attempts")]
        assert [type(each) for each in bench.told] == [*[DeliverySettled] * 4, DeadLettered]

    def test_what_was_not_attempted_yet_is_not(self) -> None:
        bench = Bench()

        bench.outcomes.emit([make_item(outcome="behind"), make_item(outcome="schedule")])

        assert bench.told == []

    def test_a_scheduled_one_that_failed_is(self) -> None:
        bench = Bench()
        item = make_item(state="scheduled")
        bench.outcomes.decide(item, ValueError())
        bench.told.clear()

        bench.outcomes.emit([item])

        assert [type(each) for each in bench.told] == [DeliverySettled]

    def test_without_observers_nothing_is_made(self) -> None:
        items = iter([make_item()])

        Bench(observed=False).outcomes.emit(items)

        assert len(list(items)) == 1, "nobody has gone through them"
