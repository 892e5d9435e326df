"""How careful a holder is after a crash, and for how long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from sa_outbox import Event, Outbox
from sa_outbox.consumer.fault.quarantine import CrashQuarantine
from sa_outbox.consumer.handler.delivery import InFlight
from sa_outbox.declare.listener import Listener
from sa_outbox.policy.delivery import Outcome
from sa_outbox.policy.failure import Failure


def listener(**options: Any) -> Listener:
    outbox = Outbox()

    @outbox.listener("billing", on="*", **options)
    async def charge(event: Event[Any]) -> None: ...

    return outbox.listeners["billing"]


def of_batches(**options: Any) -> Listener:
    outbox = Outbox()

    @outbox.listener("billing", on="*", **options)
    async def charge(events: Sequence[Event[Any]]) -> None: ...

    return outbox.listeners["billing"]


def item(
    position: int = 1, *, outcome: Outcome = "done", state: Any = "", failed: bool = False
) -> InFlight:
    row = (position, None, "order.placed", None)
    failure = Failure(1, "x", "x", "x") if failed else None
    return InFlight(row, position, state=state, outcome=outcome, failure=failure)


def never(_position: int) -> bool:
    return False


def test_without_a_crash_there_is_none() -> None:
    caution = CrashQuarantine(0, [], listener(batch_size=100))

    assert (caution.is_on, caution.alone, caution.wants_rows, caution.window) == (
        False,
        False,
        False,
        100,
    )
    caution.settled([item()])
    caution.caught_up()
    assert not caution.is_over


class TestNarrow:
    """After a crash of which nothing is known."""

    def test_few_events_are_in_flight(self) -> None:
        assert CrashQuarantine(1, [], listener(batch_size=100)).window == 16
        assert CrashQuarantine(1, [], listener(batch_size=100, concurrency=40)).window == 40
        assert CrashQuarantine(1, [], listener(batch_size=8)).window == 8

    def test_each_further_crash_leaves_half_as_many(self) -> None:
        windows = [
            CrashQuarantine(crashes, [], listener(batch_size=100)).window for crashes in range(1, 8)
        ]

        assert windows == [16, 8, 4, 2, 1, 1, 1]

    def test_it_lasts_until_two_batches_of_the_log_and_all_rows_were_attempted(self) -> None:
        caution = CrashQuarantine(1, [], listener(batch_size=2))
        caution.settled([item(n) for n in range(3)])
        caution.no_rows_left(never)
        assert caution.is_on

        caution.settled([item(3)])

        assert not caution.is_on
        assert caution.is_over

    def test_it_does_not_end_while_a_row_was_not_attempted(self) -> None:
        caution = CrashQuarantine(1, [], listener(batch_size=2))

        caution.settled([item(n) for n in range(50)])
        assert caution.is_on
        assert caution.wants_rows

        caution.no_rows_left(never)
        assert caution.is_over

    def test_a_handler_of_batches_may_have_had_four(self) -> None:
        caution = CrashQuarantine(1, [], of_batches(batch_size=2))
        caution.no_rows_left(never)

        caution.settled([item(n) for n in range(7)])
        assert caution.is_on
        caution.settled([item(8)])
        assert caution.is_over

    @pytest.mark.parametrize(
        "unattempted",
        [
            item(outcome="behind"),
            item(outcome="schedule"),
            item(outcome="withdraw"),
            item(state="parked"),
            item(state="scheduled", outcome="schedule", failed=True),
        ],
    )
    def test_only_attempts_at_events_of_the_log_bring_its_end_nearer(
        self, unattempted: InFlight
    ) -> None:
        caution = CrashQuarantine(1, [], listener(batch_size=1))
        caution.no_rows_left(never)

        caution.settled([unattempted] * 10)
        assert caution.is_on

        caution.settled([item(outcome="park", failed=True), item(outcome="hold", failed=True)])
        assert caution.is_over

    def test_what_became_due_since_leaves_room_for_the_log(self) -> None:
        caution = CrashQuarantine(1, [], listener(batch_size=100))

        assert caution.due(16, has_new=True) == 8
        assert caution.due(1, has_new=True) == 1
        assert caution.due(16, has_new=False) == 16

    def test_it_ends_when_nothing_is_left(self) -> None:
        caution = CrashQuarantine(1, [], listener())

        caution.caught_up()

        assert (caution.is_on, caution.is_over) == (False, True)


class TestAlone:
    """After a crash of which the suspects are known."""

    def test_one_event_is_in_flight(self) -> None:
        caution = CrashQuarantine(2, [7, 5], listener(batch_size=100, concurrency=40))

        assert (caution.alone, caution.window, caution.suspects) == (True, 1, [5, 7])

    def test_it_lasts_until_each_suspect_was_attempted_whatever_came_before(self) -> None:
        caution = CrashQuarantine(2, [500, 501], listener(batch_size=2))

        caution.settled([item(n) for n in range(100)])
        caution.settled([item(501)])
        assert caution.alone

        caution.settled([item(500, state="scheduled", outcome="schedule", failed=True)])
        assert not caution.alone
        assert caution.is_on, "what was due is attempted among few"

    def test_suspects_with_rows_are_looked_for_until_there_are_none(self) -> None:
        caution = CrashQuarantine(2, [3, 9], listener())
        assert caution.wants_rows

        caution.no_rows_left(lambda position: position == 9)

        assert (caution.suspects, caution.wants_rows) == ([9], False)
        caution.settled([item(9)])
        assert caution.wants_rows, "those that were due at the takeover, from now on"

    def test_a_suspect_that_is_gone_is_not_waited_for(self) -> None:
        caution = CrashQuarantine(0, [3], listener())

        caution.no_rows_left(never)

        assert caution.is_over

    def test_what_became_due_since_waits_unless_there_is_nothing_else(self) -> None:
        caution = CrashQuarantine(2, [3], listener())

        assert caution.due(1, has_new=True) == 0
        assert caution.due(1, has_new=False) == 1


class TestRange:
    def test_all_of_it_is_attempted_among_few(self) -> None:
        caution = CrashQuarantine(1, [], listener(order="none", batch_size=500))
        caution.covers([1, 2, 3])
        assert not caution.wants_rows

        caution.settled([item(1), item(2, state="scheduled")])
        assert caution.is_on
        caution.settled([item(3)])
        assert caution.is_over

    def test_suspects_that_are_not_left_in_it_are_none(self) -> None:
        caution = CrashQuarantine(2, [1, 3], listener(order="none"))
        caution.covers([3, 4])

        assert caution.suspects == [3]
        caution.settled([item(3)])
        assert not caution.alone
        assert caution.is_on
