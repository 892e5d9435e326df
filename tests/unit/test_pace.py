"""How many events of a queue are taken at once: as many as its handlers are quick."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from sa_outbox import Event, Outbox
from sa_outbox.consumer.queue.selection import AT_SPEED, USUAL, Pace
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
        pace.ended(pace.size, 0.001)
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
        slow.ended(slow.size, 5.0)

    assert slow.size == 2
    slow.ended(1, 0.001)
    assert slow.size == 4


def test_a_few_that_were_left_say_nothing_of_the_pace() -> None:
    few = pace(concurrency=10)
    few.ended(3, 0.001)

    assert few.size == 40
