"""How many events of a queue are taken at once: as many as its handlers are quick."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from sa_outbox import Event, Outbox
from sa_outbox.consumer.queue.selection import (
    AT_SPEED,
    FAST_SECONDS,
    MAX_GROWTH,
    TARGET_RANGE_SECONDS,
    USUAL,
    Pace,
)
from sa_outbox.declare.listener import Listener


async def plain(event: Event[Any]) -> None:
    raise NotImplementedError


async def with_session(event: Event[Any], session: AsyncSession) -> None:
    raise NotImplementedError


def pace(handler: Any = plain, **options: Any) -> Pace:
    outbox = Outbox()
    outbox.listener("mailer", on="order.*", order="none", **options)(handler)
    listener: Listener = outbox.listeners["mailer"]
    return Pace(listener)


def after_quick_ranges(pace: Pace) -> Pace:
    for _ in range(20):
        pace.ended(0.001, [0.000001] * pace.size)
    return pace


def test_it_begins_with_a_few_for_each_handler() -> None:
    assert pace(concurrency=3).size == 12


def test_quick_handlers_get_large_ranges_and_the_next_one_meanwhile() -> None:
    assert after_quick_ranges(pace()).size == AT_SPEED > USUAL
    assert (pace().ranges, after_quick_ranges(pace()).ranges) == (2, 3)


@pytest.mark.parametrize(
    ("handler", "options", "most"),
    [
        (plain, {"batch_size": 20}, 20),
        (with_session, {}, USUAL),
        (plain, {"batch_size": 5000}, 5000),
    ],
)
def test_no_range_is_larger_than_was_asked_for(
    handler: Any, options: dict[str, int], most: int
) -> None:
    assert after_quick_ranges(pace(handler, **options)).size == most


def test_slow_handlers_get_small_ranges_again() -> None:
    slow = after_quick_ranges(pace(concurrency=2))
    for _ in range(20):
        slow.ended(5.0, [5.0 / slow.size] * slow.size)

    assert slow.size == 2
    slow.ended(0.2, [0.1, 0.1])
    assert slow.size == 10


def test_a_few_that_were_left_say_nothing_of_the_pace() -> None:
    few = pace(concurrency=10)
    few.ended(0.001, [0.0] * 3)

    assert few.size == 40


@pytest.mark.parametrize("seconds", [0.05, 0.1, 0.2, 0.4])
def test_the_second_range_is_as_much_larger_as_the_first_was_quicker_than_a_second(
    seconds: float,
) -> None:
    began = pace()
    began.ended(seconds, [seconds / began.size] * began.size)

    assert began.size == pytest.approx(4 * TARGET_RANGE_SECONDS / seconds, abs=1)


def test_a_few_quick_events_do_not_make_the_largest_range() -> None:
    began = pace()
    began.ended(0.0, [0.0] * began.size)

    assert began.size == MAX_GROWTH * 4


def test_quick_handlers_with_slow_commits_do_not_get_more_than_a_second_of_them() -> None:
    committing = pace(with_session)
    committing.ended(0.4, [0.000001] * committing.size)

    assert committing.size == 10


@pytest.mark.parametrize("turn", [0.1, 0.7, 1.5])
def test_among_listeners_that_take_long_turns_quick_handlers_get_large_ranges_too(
    turn: float,
) -> None:
    """With small ones, most of its own turns would go by with claims."""
    among_many = pace()
    for _ in range(3):
        among_many.ended(turn, [0.000001] * among_many.size)

    assert among_many.size == AT_SPEED


def test_handlers_that_compute_get_ranges_that_two_processes_end_together() -> None:
    computing = pace()
    for _ in range(20):
        computing.ended(0.0001 * computing.size, [0.0001] * computing.size)

    assert (computing.size, computing.ranges) == (USUAL, 2)


def test_handlers_that_become_slower_end_the_ranges_above_batch_size() -> None:
    quick = after_quick_ranges(pace())
    quick.ended(0.2, [2 * FAST_SECONDS / AT_SPEED] * quick.size)

    assert (quick.size, quick.ranges) == (USUAL, 2)


def test_one_call_while_others_have_the_processor_does_not_make_a_handler_slow() -> None:
    quick = after_quick_ranges(pace())
    quick.ended(0.2, [0.000001] * (quick.size - 1) + [0.1])

    assert quick.size == AT_SPEED


def test_quick_small_ranges_do_not_make_one_that_is_larger_than_a_batch() -> None:
    """Sixty-four easy events say little of the next two thousand."""
    began = pace(concurrency=16)
    began.ended(0.001, [0.00001] * began.size)

    assert began.size == USUAL


def test_a_range_of_which_nothing_was_handled_says_nothing() -> None:
    large = after_quick_ranges(pace())
    large.ended(0.01, [])

    assert large.size == AT_SPEED
