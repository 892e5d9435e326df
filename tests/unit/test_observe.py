"""Telling observers, whatever they do."""

from __future__ import annotations

import dataclasses
import inspect
import logging
from uuid import UUID

import pytest

from sa_outbox import observe
from sa_outbox.logs.log import OF_DELIVERIES
from sa_outbox.observe import (
    BatchSettled,
    CaughtUp,
    DatabaseBack,
    DeliverySettled,
    Observation,
    Observers,
    Place,
    in_batches,
)

KINDS = [
    each
    for each in vars(observe).values()
    if inspect.isclass(each) and issubclass(each, Observation) and each is not Observation
]
AT_A_POSITION = {
    *(observe.ListenerRegistered, observe.ListenerOrphaned, observe.LeaseClaimed),
    *(observe.CommitsLost, observe.BatchRead, CaughtUp, observe.RetentionHeld, observe.EventsGone),
}
"""Observations with a position of a listener, and not of one delivery."""
LOOK, BACK = CaughtUp("billing", 5), DatabaseBack(Place("leases"))
BATCH = BatchSettled("billing", ())
SINGLE = DeliverySettled("billing", UUID(int=7), "order.placed", 7, 1, "done", 0.0)


class Broken:
    def __init__(self) -> None:
        self.told: list[Observation] = []

    def __call__(self, observation: Observation) -> None:
        self.told.append(observation)
        raise RuntimeError("the metric is broken")


def test_an_observation_of_one_delivery_names_its_event_and_the_attempt() -> None:
    of_deliveries = {
        each
        for each in {*KINDS} - AT_A_POSITION
        if "position" in (names := names_in(each)) or "event_id" in names
    }

    assert of_deliveries == {*OF_DELIVERIES}
    lacking = {
        each.__name__: missing
        for each in of_deliveries
        if (missing := IDENTITY - {name.replace("attempts", "attempt") for name in names_in(each)})
    }
    assert lacking == {}


def names_in(kind: type[Observation]) -> set[str]:
    return {each.name for each in dataclasses.fields(kind)}


IDENTITY = {"listener", "event_id", "event_type", "position", "attempt", "origin"}


class TestTelling:
    def test_each_is_told_in_order(self) -> None:
        first: list[Observation] = []
        second: list[Observation] = []
        observers = Observers((first.append,))
        observers.add(second.append)

        observers.emit(LOOK)
        observers.emit(BACK)

        assert first == second == [LOOK, BACK]
        assert first[0] is second[0]

    def test_without_observers_it_is_false_and_telling_does_nothing(self) -> None:
        observers = Observers()

        assert not observers
        observers.emit(LOOK)

    def test_one_that_was_removed_is_not_told(self) -> None:
        told: list[Observation] = []
        observers = Observers((told.append,))

        observers.remove(told.append)
        observers.emit(LOOK)

        assert told == []
        assert not observers

    def test_one_may_leave_while_it_is_told(self) -> None:
        told: list[Observation] = []

        def once(observation: Observation) -> None:
            observers.remove(once)

        observers = Observers((once, told.append))
        observers.emit(LOOK)
        observers.emit(BACK)

        assert told == [LOOK, BACK]

    def test_what_it_returns_does_not_matter(self) -> None:
        told: list[Observation] = []

        def answers(observation: Observation) -> bool:
            told.append(observation)
            return False

        observers = Observers((answers, told.append))
        observers.emit(LOOK)
        observers.emit(BACK)

        assert told == [LOOK, LOOK, BACK, BACK]

    def test_one_that_wants_only_some_classes_is_told_no_others(self) -> None:
        class Choosy:
            wants_only = frozenset({type(BACK)})

            def __init__(self) -> None:
                self.told: list[Observation] = []

            def __call__(self, observation: Observation) -> None:
                self.told.append(observation)

        choosy, later, told = Choosy(), Choosy(), list[Observation]()
        observers = Observers((choosy, told.append))
        observers.emit(LOOK)
        observers.emit(BACK)
        observers.add(later)
        observers.emit(LOOK)
        observers.emit(BACK)

        assert told == [LOOK, BACK, LOOK, BACK]
        assert choosy.told == [BACK, BACK]
        assert later.told == [BACK]


class TestBatches:
    def test_one_that_wants_batches_gets_those_and_no_single_delivery(self) -> None:
        class Batched:
            wants_batches = True

            def __init__(self) -> None:
                self.told: list[Observation] = []

            def __call__(self, observation: Observation) -> None:
                self.told.append(observation)

            @in_batches
            def method(self, observation: Observation) -> None:
                self.told.append(observation)

        one, other = Batched(), Batched()
        each: list[Observation] = []
        observers = Observers((one, each.append))
        observers.add(other.method)
        observers.emit_batch(BATCH)
        observers.emit_each(SINGLE)
        observers.emit(LOOK)

        assert one.told == other.told == [BATCH, LOOK]
        assert each == [SINGLE, LOOK]

    def test_one_that_was_removed_gets_neither(self) -> None:
        told: list[Observation] = []
        observers = Observers((told.append,))
        observers.remove(told.append)
        observers.emit_each(SINGLE)

        assert told == []
        assert not observers.single


class TestBrokenObservers:
    def test_the_others_are_told_and_so_is_it_the_next_time(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        broken = Broken()
        told: list[Observation] = []
        observers = Observers((broken, told.append))

        observers.emit(LOOK)
        observers.emit(BACK)

        assert broken.told == told == [LOOK, BACK]

    def test_it_is_reported_once_each(self, caplog: pytest.LogCaptureFixture) -> None:
        observers = Observers((Broken(), Broken()))

        with caplog.at_level(logging.ERROR, "sa_outbox.observe"):
            for _ in range(5):
                observers.emit(LOOK)

        assert len(caplog.records) == 2
        assert "the metric is broken" in caplog.text

    def test_an_interrupt_is_not_swallowed(self) -> None:
        def interrupts(observation: Observation) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            Observers((interrupts,)).emit(LOOK)


class TestObservations:
    def test_each_says_what_happened(self) -> None:
        """Without a docstring a dataclass gets its signature for one."""
        texts = {each.__name__: each.__doc__ or "" for each in KINDS}

        assert [
            name for name, text in texts.items() if not text or text.startswith(f"{name}(")
        ] == []

    def test_none_holds_what_people_must_not_see_in_logs(self) -> None:
        unseen = {"payload", "key", "headers", "event", "row", "item"}
        fields = [(kind, each.name) for kind in KINDS for each in dataclasses.fields(kind)]

        assert fields
        assert [(kind, name) for kind, name in fields if name in unseen] == []

    def test_two_with_the_same_values_are_equal(self) -> None:
        assert CaughtUp("billing", 5) == LOOK
        assert CaughtUp("billing", 6) != LOOK
