"""What is remembered between two claims, and for how long."""

from __future__ import annotations

from math import inf
from typing import Any
from uuid import UUID

from sa_outbox.consumer.position.gaps import Gaps
from sa_outbox.consumer.position.horizon import HorizonSnapshot
from sa_outbox.consumer.position.progress import Progress
from sa_outbox.consumer.queue.remembered import STATE_CACHE_SECONDS, Remembered
from sa_outbox.consumer.queue.selection import Selection
from sa_outbox.consumer.settle.buffer import SKIP_SAVE_SECONDS

NOW = 1000.0


def selection(*rows: Any, position: int = 80) -> Selection:
    """From a queue whose cursor is at 70."""
    return Selection(Progress(70), rows, position, Gaps(), HorizonSnapshot(9, 80, 80, 0))


def event(position: int) -> Any:
    """One to handle now."""
    body = ("order.placed", None, None, "{}", "{}", None, 0, NOW, None, True)
    return (position, UUID(int=position), *body)


def test_the_state_is_remembered_for_a_moment() -> None:
    known = Remembered(state={"revision": 3}, asked_at=NOW)

    assert known.has_state(NOW + STATE_CACHE_SECONDS - 0.001)
    assert not known.has_state(NOW + STATE_CACHE_SECONDS)


def test_without_a_state_there_is_none_at_any_time() -> None:
    assert not Remembered(asked_at=NOW).has_state(NOW)


def test_what_is_passed_is_saved_a_while_after_the_first_of_it() -> None:
    known, first, second = Remembered(), selection(position=72), selection(position=75)

    known.pass_later(first, NOW)
    known.pass_later(second, NOW + 1)

    assert known.passed is second
    assert known.pass_at == NOW + SKIP_SAVE_SECONDS


def test_nothing_is_left_to_save_when_the_cursor_is_where_it_should_be() -> None:
    known = Remembered()
    known.pass_later(selection(), NOW)

    known.pass_nothing()

    assert known.passed is None
    assert known.pass_at == inf


def test_a_read_that_found_nothing_for_us_is_saved_later_and_counts_as_read() -> None:
    known, found = Remembered(), selection()

    known.claimed(found, None, now=NOW, is_behind=False)

    assert (known.passed, known.pass_at) == (found, NOW + SKIP_SAVE_SECONDS)
    assert known.read_snapshot == 9
    assert known.rests_at is not None
    assert known.rests_at.read_to == 80


def test_while_more_is_waiting_not_everything_counts_as_read() -> None:
    known = Remembered(rests_at=Progress(60))

    known.claimed(selection(), None, now=NOW, is_behind=True)

    assert (known.read_snapshot, known.rests_at) == (0, None)


def test_a_claim_that_another_process_was_faster_with_leaves_nothing_to_stand_on() -> None:
    known = Remembered(state={"revision": 3}, rests_at=Progress(60))

    known.claimed(selection(event(75)), None, now=NOW, is_behind=False)

    assert (known.state, known.read_snapshot, known.rests_at) == (None, 0, None)
