"""Which event may be handled next: in its lane one at a time, in order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from random import Random
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sa_outbox.consumer.handler.delivery import InFlight
from sa_outbox.consumer.lanes.lanes import Lanes, LooseLanes, OneLane


def joins(item: InFlight) -> bool:
    return not item.single


def make_item(position: int, lane: Hashable) -> InFlight:
    return InFlight((position, UUID(int=position), "t", str(lane)), lane)


class Handing:
    """Hands that take events, finish them, fail, put them back, by chance; beside it, lists."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.lanes = Lanes()
        self.position = 0
        self.waiting: dict[object, list[InFlight]] = defaultdict(list)
        self.out: dict[object, list[InFlight]] = {}
        """By lane, what a hand has."""

    def play(self, steps: int) -> None:
        kinds = [self.put, self.take, self.take_batch, self.finish, self.fail, self.park]
        often = [self.random.choice([1, 2, 6]) for _ in kinds]
        for step in self.random.choices(kinds, often, k=steps):
            step()
            self.check()
        self.come_to_an_end()

    @property
    def free_lanes(self) -> set[object]:
        return {lane for lane, items in self.waiting.items() if items and lane not in self.out}

    def put(self) -> None:
        self.position += 1
        item = make_item(self.position, self.random.choice(["a", "b", "c", 1, "1"]))
        self.lanes.put(item)
        self.waiting[item.lane].append(item)

    def take(self) -> None:
        free = self.free_lanes

        item = self.lanes.take()

        assert (item is None) == (not free)
        if item is not None:
            self.hand_out([item])

    def take_batch(self) -> None:
        most = self.random.randint(1, 6)
        may_come = [item for lane in self.free_lanes for item in self.waiting[lane]]

        items = self.lanes.take_batch(most)

        assert [item.position for item in items] == sorted(item.position for item in items)
        assert bool(items) == bool(may_come)
        if any(item.single for item in may_come):
            assert len(items) == 1 or not any(item.single for item in items)
            assert len(items) <= most
        else:
            assert len(items) == min(most, len(may_come))
        self.hand_out(items)

    def hand_out(self, items: list[InFlight]) -> None:
        by_lane: dict[object, list[InFlight]] = defaultdict(list)
        for item in items:
            by_lane[item.lane].append(item)
        for lane, taken in by_lane.items():
            assert lane not in self.out, "two of a lane at once"
            assert taken == self.waiting[lane][: len(taken)], "out of order"
            del self.waiting[lane][: len(taken)]
            self.out[lane] = taken

    def finish(self) -> None:
        if self.out:
            lane = self.random.choice(list(self.out))
            del self.out[lane]
            self.lanes.free(lane)
            if self.random.random() < 0.2:
                self.lanes.free(lane)  # no harm, as long as it was not handed out again

    def fail(self) -> None:
        """Those from the one that failed on go back to where they came from."""
        if self.out:
            lane = self.random.choice(list(self.out))
            items = self.out.pop(lane)
            again = items[self.random.randint(0, len(items)) :]
            for item in again:
                item.single = self.random.random() < 0.5
            self.lanes.put_back(again)
            self.waiting[lane][:0] = again
            self.lanes.free(lane)

    def park(self) -> None:
        """What waits behind one that is parked leaves the lanes."""
        if self.out and self.random.random() < 0.5:
            lane = self.random.choice(list(self.out))

            assert self.lanes.remove(lane) == self.waiting[lane]

            del self.out[lane]
            self.waiting[lane] = []
            self.lanes.free(lane)

    def check(self) -> None:
        assert self.lanes.count == sum(len(items) for items in self.waiting.values())
        assert self.lanes.running == len(self.out)
        assert self.lanes.ready == len(self.free_lanes)

    def come_to_an_end(self) -> None:
        """Hands that go on get everything."""
        for lane in list(self.out):
            self.lanes.free(lane)
            del self.out[lane]
        for _ in range(self.lanes.count):
            self.take()
            self.lanes.free(self.out.popitem()[0])
        assert not any(self.waiting.values())
        assert (self.lanes.count, self.lanes.ready, self.lanes.running) == (0, 0, 0)


def taken(lanes: Lanes) -> list[int]:
    """What one hand gets that finishes each before it takes the next."""
    found = []
    while (item := lanes.take()) is not None:
        found.append(item.position)
        lanes.free(item.lane)
    return found


def lanes_of(**positions: list[int]) -> Lanes:
    lanes = Lanes()
    for position, lane in sorted((each, lane) for lane, ids in positions.items() for each in ids):
        lanes.put(make_item(position, lane))
    return lanes


class TestAnyOrderOfEvents:
    @given(st.integers(0))
    def test_a_lane_is_out_once_and_its_events_come_in_order(self, seed: int) -> None:
        Handing(seed).play(steps=200)


class TestTaking:
    def test_the_second_of_a_lane_comes_when_the_first_is_finished(self) -> None:
        lanes = lanes_of(a=[1, 2])
        first = lanes.take()

        assert first is not None
        assert lanes.take() is None
        lanes.free("a")
        assert taken(lanes) == [2]

    def test_other_lanes_do_not_wait(self) -> None:
        lanes = lanes_of(a=[1, 2], b=[3])
        lanes.take()

        assert taken(lanes) == [3]

    def test_lanes_take_turns(self) -> None:
        lanes = lanes_of(a=[1, 2, 3], b=[4, 5])

        assert taken(lanes) == [1, 4, 2, 5, 3]

    def test_what_comes_while_its_lane_is_out_waits(self) -> None:
        lanes = lanes_of(a=[1])
        lanes.take()
        lanes.put(make_item(2, "a"))

        assert (lanes.count, lanes.ready, lanes.running) == (1, 0, 1)
        assert lanes.take() is None

    def test_a_key_that_looks_like_a_position_is_another_lane(self) -> None:
        lanes = Lanes()
        lanes.put(make_item(5, 5))
        lanes.put(make_item(6, "5"))

        assert lanes.ready == 2


class TestBatches:
    def test_all_that_waits_in_free_lanes_comes_in_the_order_of_the_log(self) -> None:
        lanes = lanes_of(a=[1, 4], b=[2, 3], c=[5])

        assert [item.position for item in lanes.take_batch(10)] == [1, 2, 3, 4, 5]
        assert (lanes.count, lanes.running) == (0, 3)

    def test_no_more_than_asked_for_and_the_rest_of_a_lane_waits_for_it(self) -> None:
        lanes = lanes_of(a=[1, 2, 3])

        assert [item.position for item in lanes.take_batch(2)] == [1, 2]
        assert lanes.take_batch(2) == []
        lanes.free("a")
        assert [item.position for item in lanes.take_batch(2)] == [3]

    def test_one_that_is_to_be_attempted_alone_comes_alone(self) -> None:
        lanes = lanes_of(a=[1, 2, 3], b=[4])
        items = lanes.take_batch(10)
        items[0].single = items[1].single = True
        lanes.put_back([item for item in items if item.lane == "a"])
        lanes.free("a")
        lanes.free("b")

        batches = []
        while batch := lanes.take_batch(10):
            batches.append([item.position for item in batch])
            for item in batch:
                lanes.free(item.lane)
        assert batches == [[1], [2], [3]]

    def test_a_batch_ends_before_one_that_is_to_be_attempted_alone(self) -> None:
        lanes = Lanes()
        for position in (1, 2, 3):
            item = make_item(position, "a")
            item.single = position == 2
            lanes.put(item)

        assert [item.position for item in lanes.take_batch(10)] == [1]

    def test_a_batch_that_goes_back_comes_again_as_it_was(self) -> None:
        lanes = lanes_of(a=[1, 4, 6], b=[2, 3])
        batch = lanes.take_batch(4)

        for lane in ("b", "a"):
            lanes.put_back([item for item in batch if item.lane == lane])
            lanes.free(lane)

        assert lanes.count == 5
        assert taken(lanes) == [2, 1, 3, 4, 6]


class TestWithdrawing:
    @pytest.mark.parametrize("make", [Lanes, OneLane])
    def test_one_that_waits_is_never_handed_out(self, make: type[Lanes | OneLane]) -> None:
        lanes = make()
        items = [make_item(position, position) for position in (1, 2, 3)]
        for item in items:
            lanes.put(item)

        assert lanes.withdraw(items[1])

        taken = []
        while (next_one := lanes.take()) is not None:
            taken.append(next_one.position)
            lanes.free(next_one.lane)
        assert taken == [1, 3]
        assert (lanes.count, lanes.ready, lanes.running) == (0, 0, 0)

    @pytest.mark.parametrize("make", [Lanes, OneLane])
    def test_one_that_a_hand_has_stays_with_it(self, make: type[Lanes | OneLane]) -> None:
        lanes = make()
        item = make_item(1, 1)
        lanes.put(item)
        lanes.take()

        assert not lanes.withdraw(item)
        assert lanes.running == 1

    def test_the_next_of_its_lane_moves_up(self) -> None:
        lanes = Lanes()
        first, second = make_item(1, "a"), make_item(2, "a")
        lanes.put(first)
        lanes.put(second)

        assert lanes.withdraw(first)

        assert lanes.take() is second


class TestLeaving:
    def test_those_behind_a_parked_one_leave_its_lane_in_their_order(self) -> None:
        lanes = lanes_of(a=[1, 2, 3], b=[4])
        lanes.take()

        assert [item.position for item in lanes.remove("a")] == [2, 3]
        assert lanes.count == 1
        lanes.free("a")
        assert taken(lanes) == [4]

    def test_a_lane_with_nothing_behind_has_nothing_to_remove(self) -> None:
        lanes = lanes_of(a=[1])
        lanes.take()

        assert lanes.remove("a") == []
        assert lanes.count == 0

    def test_nothing_can_be_put_back(self) -> None:
        lanes = Lanes()

        lanes.put_back([])

        assert lanes.count == 0


class TestLooseLanes:
    """Of a range of a queue: no event waits for another."""

    def lanes(self, *singles: int) -> tuple[LooseLanes, list[InFlight]]:
        lanes, items = LooseLanes(), [make_item(at, at) for at in range(1, 6)]
        for item in items:
            item.single = item.position in singles
            lanes.put(item)
        return lanes, items

    def test_all_can_be_taken_side_by_side_in_their_order(self) -> None:
        lanes, items = self.lanes()

        assert (lanes.count, lanes.ready) == (5, 5)
        assert [lanes.take() for _ in range(6)] == [*items, None]

    def test_one_that_is_put_back_comes_next(self) -> None:
        lanes, items = self.lanes()
        first = lanes.take()
        assert first is items[0]
        lanes.put_back([first])

        assert lanes.take() is first

    def test_one_that_is_to_be_alone_is_a_batch_of_its_own(self) -> None:
        lanes, items = self.lanes(3)

        batches = [lanes.take_batch(10) for _ in range(4)]

        assert batches == [items[:2], [items[2]], items[3:], []]

    def test_only_one_that_waits_can_be_withdrawn(self) -> None:
        lanes, items = self.lanes()
        assert lanes.take() is items[0]

        assert [lanes.withdraw(items[0]), lanes.withdraw(items[3])] == [False, True]
        assert lanes.take_batch(10) == [items[1], items[2], items[4]]


class TestGoingOn:
    """A task that goes on in its transaction takes more without giving anything back."""

    def test_free_lanes_come_first_then_those_it_has(self) -> None:
        lanes = lanes_of(a=[1, 3], b=[2])
        first = lanes.take()
        assert first is not None
        held = {first.lane: None}

        found = []
        while lanes.has_more(held, joins):
            item = lanes.take_more(held, joins)
            assert item is not None
            held[item.lane] = None
            found.append(item.position)

        assert (first.position, found) == (1, [2, 3])
        assert lanes.take_more(held, joins) is None

    def test_a_lane_that_another_task_has_is_not_touched(self) -> None:
        lanes = lanes_of(a=[1, 3], b=[2, 4])
        mine, other = lanes.take(), lanes.take()
        assert mine is not None
        assert other is not None

        more = lanes.take_more({mine.lane: None}, joins)

        assert more is not None
        assert more.position == 3
        assert not lanes.has_more({mine.lane: None}, joins)

    @pytest.mark.parametrize("make", [Lanes, OneLane, LooseLanes])
    def test_one_that_may_not_join_is_not_taken(
        self, make: type[Lanes | OneLane | LooseLanes]
    ) -> None:
        lanes = make()
        alone = make_item(2, "a")
        alone.single = True
        lanes.put(make_item(1, "a"))
        lanes.put(alone)
        first = lanes.take()
        assert first is not None

        assert not lanes.has_more([first.lane], joins)
        assert lanes.take_more([first.lane], joins) is None
        assert lanes.count == 1


def test_events_that_were_taken_and_did_not_begin_are_next_again() -> None:
    lanes = Lanes()
    held, later = make_item(1, "held"), make_item(3, "held")
    lanes.put_all([held, make_item(2, "b"), later, make_item(4, "b"), make_item(5, "c")])
    assert lanes.take() is held
    taken = [lanes.take_more(["held", "b"], joins) for _ in range(3)]
    items = [item for item in taken if item is not None]
    assert [item.position for item in items] == [2, 5, 3]

    lanes.untake(items, {"held"})

    found = [lanes.take(), lanes.take()]
    assert [item.position for item in found if item] == [2, 5]
    assert lanes.take() is None
    lanes.free("held")
    assert lanes.take() is later


@pytest.mark.parametrize("kind", [LooseLanes, OneLane])
def test_events_of_one_queue_that_did_not_begin_are_next_again(
    kind: type[LooseLanes | OneLane],
) -> None:
    lanes = kind()
    lanes.put_all([make_item(n, n) for n in range(4)])
    first = lanes.take()
    assert first is not None
    items = [item for item in (lanes.take_more([0], joins), lanes.take_more([0], joins)) if item]

    lanes.untake(items, {0})
    lanes.free(0)

    following = [lanes.take_more([0], joins) for _ in range(3)]
    assert [item.position for item in following if item] == [1, 2, 3]
