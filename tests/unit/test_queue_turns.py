"""Whose turn it is when a process takes events of a queue: nobody waits forever."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from sa_outbox.consumer.queue.claim import LOWEST, RangeClaimer

pytestmark = pytest.mark.anyio
DUE = {"free_in": None, "due_in": -1.0}


class Crowd(RangeClaimer):
    """Claims nothing: new events without end, and deliveries that are due."""

    def __init__(self, *, urgent_ones: bool) -> None:
        self._turn = 0
        self.turns: Counter[str] = Counter()
        self._urgent_ones = urgent_ones

    async def _new(self, _state: object, _size: int) -> Any:
        self.turns["log"] += 1
        return "taken"

    async def _due(self, _size: int, *, least: int, by_age: bool = False) -> Any:
        if least == 0 and not self._urgent_ones:
            return None
        assert by_age == (least == LOWEST)
        self.turns["oldest" if by_age else "by priority"] += 1
        return "taken"


@pytest.mark.parametrize(
    ("urgent_ones", "expected"),
    [
        (True, {"by priority": 4, "oldest": 2, "log": 2}),
        (False, {"oldest": 2, "log": 6}),
    ],
)
async def test_of_four_turns_one_goes_to_what_is_due_for_longest_whatever_its_priority(
    urgent_ones: bool, expected: dict[str, int]
) -> None:
    crowd = Crowd(urgent_ones=urgent_ones)

    for _ in range(8):
        taken: Any = await crowd._take_turn(DUE, [], 4)
        assert taken == "taken"

    assert crowd.turns == expected
