"""Limits of a queue: who may begin, tenant by tenant."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from math import inf
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sa_outbox import Rate
from sa_outbox.consumer.handler.delivery import InFlight
from sa_outbox.consumer.lanes.limits import ConcurrencyLimits, LimitedLanes
from sa_outbox.declare.listener import Listener
from sa_outbox.errors import ConfigError


async def handler(event: Any) -> None:
    raise NotImplementedError


def listener(**limits: Any) -> Listener:
    options = {"name": "q", "handler": handler, "on": ("a",), "order": "none", "concurrency": 50}
    return Listener(**{**options, **limits})


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def item(position: int, tenant: str | None) -> InFlight:
    return InFlight((position, UUID(int=position), "a", None, tenant), position)


def lanes_of(limits: ConcurrencyLimits, clock: Clock, tenants: str) -> LimitedLanes:
    lanes = LimitedLanes(limits, clock)
    for position, tenant in enumerate(tenants):
        lanes.put(item(position, tenant))
    return lanes


def taken(lanes: LimitedLanes) -> list[InFlight]:
    found = []
    while (one := lanes.take()) is not None:
        found.append(one)
    return found


class TestConcurrency:
    def test_a_tenant_has_no_more_at_once_than_it_may(self) -> None:
        clock = Clock()
        lanes = lanes_of(
            ConcurrencyLimits(listener(tenant_concurrency=2), lambda: None, clock), clock, "aaab"
        )
        first = taken(lanes)
        assert [each.row[4] for each in first] == ["a", "b", "a"]
        assert (lanes.count, lanes.ready, lanes.ready_at) == (1, 0, None)

        lanes.free(first[0].lane)
        assert lanes.ready == 1
        assert [each.position for each in taken(lanes)] == [2]

    def test_one_that_leaves_wakes_the_ranges_that_wait(self) -> None:
        clock, woken = Clock(), []
        limits = ConcurrencyLimits(listener(tenant_concurrency=1), lambda: woken.append(1), clock)
        one, other = lanes_of(limits, clock, "a"), lanes_of(limits, clock, "a")
        [first] = taken(one)
        assert taken(other) == []
        assert woken == []
        one.free(first.lane)
        assert woken == [1]
        other.wake()
        assert len(taken(other)) == 1

    def test_one_that_is_put_back_is_next(self) -> None:
        clock = Clock()
        lanes = lanes_of(
            ConcurrencyLimits(listener(tenant_concurrency=1), lambda: None, clock), clock, "aa"
        )
        [first] = taken(lanes)
        lanes.put_back([first])
        lanes.free(first.lane)
        assert [each.position for each in taken(lanes)] == [0]

    @given(
        st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=60), st.integers(1, 4)
    )
    def test_the_limit_holds_whatever_comes_and_goes(
        self, story: list[tuple[str, bool]], most: int
    ) -> None:
        clock = Clock()
        lanes = LimitedLanes(
            ConcurrencyLimits(listener(tenant_concurrency=most), lambda: None, clock), clock
        )
        running: list[InFlight] = []
        for position, (tenant, leaves) in enumerate(story):
            lanes.put(item(position, tenant))
            if leaves and running:
                lanes.free(running.pop(0).lane)
            running += taken(lanes)
            counts = Counter(each.row[4] for each in running)
            assert max(counts.values(), default=0) <= most
        while running:
            lanes.free(running.pop(0).lane)
            running += taken(lanes)
        assert lanes.count == 0


class TestRates:
    def test_what_is_too_much_waits_for_its_time(self) -> None:
        clock = Clock()
        limits = {"rate": Rate(2, per=timedelta(seconds=10))}
        lanes = lanes_of(ConcurrencyLimits(listener(**limits), lambda: None, clock), clock, "abc")
        assert len(taken(lanes)) == 1
        assert lanes.ready_at is not None
        assert 0 < lanes.ready_at <= 10
        clock.now = lanes.ready_at
        assert lanes.ready == 2
        assert len(taken(lanes)) == 1

    def test_the_rate_of_one_tenant_is_not_that_of_another(self) -> None:
        clock = Clock()
        limits = {"tenant_rate": Rate(1, per=timedelta(seconds=10))}
        lanes = lanes_of(ConcurrencyLimits(listener(**limits), lambda: None, clock), clock, "aabb")
        assert sorted(each.row[4] for each in taken(lanes)) == ["a", "b"]
        assert lanes.ready_at != inf


@pytest.mark.parametrize(
    "options",
    [
        {"rate": 5},
        {"tenant_rate": "5/s"},
        {"tenant_concurrency": 0},
        {"tenant_concurrency": 51},
        {"rate": Rate(1), "order": "key"},
        {"tenant_concurrency": 1, "order": "total", "concurrency": 1},
    ],
    ids=str,
)
def test_limits_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="'q'"):
        listener(**options)


class TestOneThatIsToBeAttemptedAlone:
    @pytest.mark.parametrize(
        "limits",
        [{"tenant_concurrency": 1}, {"rate": Rate(4, per=timedelta(minutes=1))}],
        ids=["tenant_concurrency", "rate"],
    )
    def test_is_next_after_the_group_that_meets_it(self, limits: dict[str, Any]) -> None:
        """It keeps its turn, however many of another tenant wait, and takes nothing of the rate."""
        clock = Clock()
        lanes = LimitedLanes(ConcurrencyLimits(listener(**limits), lambda: None, clock), clock)
        alone = item(1, "b")
        alone.single = True
        for each in (item(0, "a"), alone, item(2, "a"), item(3, "a")):
            lanes.put(each)
        first = lanes.take()
        assert first is not None

        assert lanes.take_more([first.lane], lambda item: not item.single) is None
        lanes.free(first.lane)

        assert lanes.take() is alone
