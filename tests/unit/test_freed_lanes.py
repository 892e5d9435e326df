"""A lane is freed once for each time it was handed out."""

from __future__ import annotations

from typing import Any

import pytest

from sa_outbox.consumer.handler.delivery import InFlight
from sa_outbox.consumer.loop.port import freed_lanes
from sa_outbox.policy.failure import Failure

FAILURE = Failure(1, "code", "code", "message")


def item(outcome: Any, lane: str = "key", **fields: Any) -> InFlight:
    return InFlight((1,), lane, outcome=outcome, **fields)


@pytest.mark.parametrize("outcome", ["park", "schedule"])
def test_one_that_failed_and_waits_in_a_row_frees_its_lane(outcome: str) -> None:
    assert freed_lanes([item(outcome, failure=FAILURE)]) == ["key"]


@pytest.mark.parametrize("outcome", ["park", "schedule"])
def test_one_that_was_not_attempted_had_none(outcome: str) -> None:
    assert freed_lanes([item(outcome)]) == []


@pytest.mark.parametrize("outcome", ["dead", "cancel"])
def test_one_that_came_to_its_end_frees_its_lane_if_it_had_one(outcome: str) -> None:
    assert freed_lanes([item(outcome), item(outcome, "none", aside=True)]) == ["key"]


def test_one_that_is_held_keeps_its_lane_whatever_ended_in_it() -> None:
    assert freed_lanes([item("dead"), item("hold"), item("dead", "other")]) == ["other"]


@pytest.mark.parametrize("outcome", ["done", "behind", "withdraw"])
def test_one_that_has_freed_its_lane_or_had_none_frees_nothing(outcome: str) -> None:
    assert freed_lanes([item(outcome)]) == []
