"""Which of the events that were read go into a range."""

from __future__ import annotations

from typing import Any

import pytest

from sa_outbox.consumer.position.gaps import Gaps
from sa_outbox.consumer.queue.selection import leaving, within
from sa_outbox.event.row import ID, PRIORITY, WAIT


def row(position: int, *, wait: float | None = None, priority: int = 0) -> dict[int, Any]:
    """As the driver's, by the place of a column."""
    return {ID: position, WAIT: wait, PRIORITY: priority}


ROWS = [row(1), row(2, wait=60.0), row(3), row(4, priority=-1), row(5), row(6, wait=-1.0)]


@pytest.mark.parametrize(
    ("most", "taken", "others"),
    [
        (1, [1, 2, 4], [3, 5, 6]),
        (3, [1, 2, 3, 4, 5], [6]),
        (4, [1, 2, 3, 4, 5, 6], []),
        (500, [1, 2, 3, 4, 5, 6], []),
    ],
)
def test_any_number_is_set_aside_and_so_many_are_for_now(
    most: int, taken: list[int], others: list[int]
) -> None:
    chosen, rest = within(ROWS, most)

    assert sorted(each[0] for each in chosen) == taken
    assert [each[0] for each in rest] == others


def test_what_is_not_taken_stays_in_the_gaps() -> None:
    assert leaving(10, Gaps([(3, 4)]), [3, 12]) == (12, Gaps([(4, 4), (11, 11)]))
