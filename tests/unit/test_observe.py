"""Telling observers, whatever they do."""

from __future__ import annotations

import dataclasses
import inspect
import logging

import pytest

from sa_outbox import observe
from sa_outbox.observe import CaughtUp, DatabaseBack, Observation, Observers

KINDS = [
    each
    for each in vars(observe).values()
    if inspect.isclass(each) and issubclass(each, Observation) and each is not Observation
]
LOOK, BACK = CaughtUp("billing", 5), DatabaseBack("leases")


class Broken:
    def __init__(self) -> None:
        self.told: list[Observation] = []

    def __call__(self, observation: Observation) -> None:
        self.told.append(observation)
        raise RuntimeError("the metric is broken")


class TestTelling:
    def test_each_is_told_in_order(self) -> None:
        first: list[Observation] = []
        second: list[Observation] = []
        observers = Observers((first.append,))
        observers.add(second.append)

        observers.tell(LOOK)
        observers.tell(BACK)

        assert first == second == [LOOK, BACK]
        assert first[0] is second[0]

    def test_without_observers_it_is_false_and_telling_does_nothing(self) -> None:
        observers = Observers()

        assert not observers
        observers.tell(LOOK)

    def test_one_that_was_removed_is_not_told(self) -> None:
        told: list[Observation] = []
        observers = Observers((told.append,))

        observers.remove(told.append)
        observers.tell(LOOK)

        assert told == []
        assert not observers

    def test_one_may_leave_while_it_is_told(self) -> None:
        told: list[Observation] = []

        def once(observation: Observation) -> None:
            observers.remove(once)

        observers = Observers((once, told.append))
        observers.tell(LOOK)
        observers.tell(BACK)

        assert told == [LOOK, BACK]

    def test_what_it_returns_does_not_matter(self) -> None:
        observers = Observers((lambda observation: 5,))

        observers.tell(LOOK)


class TestBrokenObservers:
    def test_the_others_are_told_and_so_is_it_the_next_time(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        broken = Broken()
        told: list[Observation] = []
        observers = Observers((broken, told.append))

        observers.tell(LOOK)
        observers.tell(BACK)

        assert broken.told == told == [LOOK, BACK]

    def test_it_is_reported_once_each(self, caplog: pytest.LogCaptureFixture) -> None:
        observers = Observers((Broken(), Broken()))

        with caplog.at_level(logging.ERROR, "sa_outbox.observe"):
            for _ in range(5):
                observers.tell(LOOK)

        assert len(caplog.records) == 2
        assert "the metric is broken" in caplog.text

    def test_an_interrupt_is_not_swallowed(self) -> None:
        def interrupts(observation: Observation) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            Observers((interrupts,)).tell(LOOK)


class TestObservations:
    @pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
    def test_each_says_what_happened(self, kind: type[Observation]) -> None:
        assert kind.__doc__
        assert not kind.__doc__.startswith(f"{kind.__name__}(")

    @pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
    def test_none_holds_what_people_must_not_see_in_logs(self, kind: type[Observation]) -> None:
        names = {each.name for each in dataclasses.fields(kind)}

        assert not names & {"payload", "key", "headers", "event", "row", "item"}

    def test_two_with_the_same_values_are_equal(self) -> None:
        assert CaughtUp("billing", 5) == LOOK
        assert CaughtUp("billing", 6) != LOOK
