"""What a drain counts, and what its limit lets begin."""

from __future__ import annotations

from uuid import UUID

from sa_outbox.consumer import Drained
from sa_outbox.consumer.handler.delivery import InFlight
from sa_outbox.consumer.lanes.lanes import LooseLanes
from sa_outbox.consumer.lanes.ration import RationedLanes
from sa_outbox.consumer.shared.tally import Tally
from sa_outbox.policy.failure import Failure

FAILURE = Failure(1, "ValueError", "error", "no")


def make_item(position: int) -> InFlight:
    return InFlight((position, UUID(int=position), "t", None), position)


def test_what_waits_is_counted_once_and_no_more_when_it_is_done() -> None:
    tally, item, behind, later = Tally(), make_item(1), make_item(2), make_item(3)
    behind.outcome, later.outcome = "behind", "schedule"
    item.outcome, item.failure = "hold", FAILURE
    tally.settled("billing", [item, behind, later])
    tally.settled("billing", [item])
    assert tally.result() == Drained(retried=2, waiting=2)

    item.outcome = behind.outcome = "done"
    tally.settled("billing", [item])
    assert tally.result() == Drained(handled=1, retried=2, waiting=1)
    tally.settled("billing", [behind])
    assert tally.result() == Drained(handled=2, retried=2)


def test_a_scheduled_event_that_failed_waits() -> None:
    tally, item = Tally(), make_item(1)
    item.outcome, item.failure = "schedule", FAILURE
    tally.settled("billing", [item])
    assert tally.result() == Drained(retried=1, waiting=1)


def test_what_is_put_back_without_an_attempt_may_be_replaced_by_another() -> None:
    tally, lanes = Tally(limit=1), LooseLanes()
    mine, other = RationedLanes(lanes, tally, "a"), RationedLanes(lanes, tally, "b")
    lanes.put_all([make_item(1), make_item(2)])
    taken = mine.take()

    assert taken is not None
    assert (other.take(), other.ready, other.has_more((), bool), other.take_batch(5)) == (
        None, 0, False, [],
    )  # fmt: skip
    assert not tally.is_open_again()
    mine.put_back([taken])
    assert tally.is_open_again()
    assert not tally.is_open_again()
    assert len(other.take_batch(5)) == 1


def test_one_that_is_held_after_its_attempt_counts_although_it_is_put_back() -> None:
    tally, lanes = Tally(limit=1), LooseLanes()
    mine = RationedLanes(lanes, tally, "a")
    lanes.put_all([make_item(1), make_item(2)])
    taken = mine.take()
    assert taken is not None
    taken.outcome = "hold"
    mine.put_back([taken])

    assert tally.left == 0
    tally.settled("a", [taken])
    assert tally.left == 0
    assert tally.result().limited


def test_a_drain_whose_last_attempts_were_lost_was_ended_by_its_limit() -> None:
    """Their lease was lost: another process settles them, and there may be more to do."""
    tally, lanes = Tally(limit=1), LooseLanes()
    mine = RationedLanes(lanes, tally, "a")
    lanes.put_all([make_item(1), make_item(2)])
    mine.take()

    assert tally.left == 0
    assert tally.result() == Drained(limited=True)
