"""Which events share a transaction, and when it ends."""

from __future__ import annotations

from uuid import UUID

from sa_outbox.consumer.handler.delivery import InFlight
from sa_outbox.consumer.lanes.lanes import Lanes
from sa_outbox.consumer.transaction.group import MAX_EVENTS, MAX_SECONDS, Group, Joins


def make_item(position: int) -> InFlight:
    return InFlight((position, UUID(int=position), "t", None), position)


class Task:
    """A task that may go on, or not, and what it has begun."""

    def __init__(self, waiting: int = 100, fits: Joins | None = None) -> None:
        self.now = 1000.0
        self.lanes = Lanes()
        for position in range(waiting + 1):
            self.lanes.put(make_item(position))
        self.may_grow = True
        self.began = 0
        first = self.lanes.take()
        assert first is not None
        self.first = first
        self.group = Group(
            [first],
            self.lanes,
            lambda: self.may_grow,
            self._begin,
            fits,
            clock=lambda: self.now,
        )

    def _begin(self, count: int) -> None:
        self.began += count

    def take(self) -> InFlight:
        item = self.group.take()
        assert item is not None
        return item


def test_it_grows_to_its_most() -> None:
    task = Task()

    while task.group.wants_more(0):
        task.take()
        task.group.succeeded()

    assert len(task.group.items) == MAX_EVENTS
    assert task.began == task.group.taken == MAX_EVENTS - 1


def test_savepoints_of_handlers_count() -> None:
    assert not Task().group.wants_more(MAX_EVENTS - 1)
    assert Task().group.wants_more(MAX_EVENTS - 2)


def test_it_ends_with_its_time() -> None:
    task = Task()

    task.now += MAX_SECONDS - 0.001
    assert task.group.wants_more(0)
    task.now += 0.001
    assert not task.group.wants_more(0)


def test_it_ends_when_nothing_waits() -> None:
    assert not Task(waiting=0).group.wants_more(0)


def test_it_ends_when_the_task_may_not_go_on() -> None:
    task = Task()
    task.may_grow = False

    assert not task.group.wants_more(0)


def test_one_that_is_to_be_attempted_alone_has_no_group() -> None:
    task = Task()
    task.first.single = True

    assert not task.group.wants_more(0)


def test_it_ends_before_one_that_does_not_fit() -> None:
    task = Task(fits=lambda item: item.position < 3)

    while task.group.wants_more(0):
        task.take()
        task.group.succeeded()

    assert [item.position for item in task.group.items] == [0, 1, 2]
    assert task.group.take() is None


def test_one_that_fails_ends_it_and_is_not_among_its_items() -> None:
    task, error = Task(), ValueError()
    done = task.take()
    task.group.succeeded()
    failed = task.take()

    task.group.fail(error)

    assert task.group.items == [task.first, done]
    assert task.group.failed == (failed, error)
    assert task.group.all == [task.first, done, failed]
    assert not task.group.wants_more(0)


def test_the_last_one_can_turn_out_to_be_spoiled() -> None:
    task, error = Task(), ValueError()
    done = task.take()
    task.group.succeeded()

    task.group.spoiled(error)

    assert task.group.items == [task.first]
    assert task.group.failed == (done, error)


def test_one_whose_handler_is_being_called_belongs_to_all() -> None:
    task = Task()
    now = task.take()

    assert task.group.all == [task.first, now]
    assert task.group.items == [task.first]


def test_what_is_reserved_and_has_not_begun_is_first_again_in_its_order() -> None:
    task = Task(waiting=5)

    reserved = [item.position for item in task.group.reserve()]
    task.take()
    task.group.succeeded()
    task.group.give_back()

    assert reserved == [1, 2, 3, 4, 5]
    assert [item.position for item in task.lanes.take_batch(9)] == [2, 3, 4, 5]


def test_a_task_reserves_its_share() -> None:
    task = Task(waiting=10)
    shared = Group([task.first], task.lanes, lambda: True, task._begin, None, share=4)

    assert len(shared.reserve()) == 3
    assert len(shared.reserve()) == 3


def test_where_an_event_that_is_taken_counts_as_running_none_is_reserved() -> None:
    task = Task(waiting=10)
    limited = Group([task.first], task.lanes, lambda: True, task._begin, None, share=0)

    assert not limited.reserve()


def test_a_thread_goes_on_to_what_is_reserved_unless_it_was_cancelled() -> None:
    task = Task(waiting=3)
    assert not task.group.may_go_on(0)

    first, second, _ = task.group.reserve()
    assert task.group.may_go_on(0)
    assert task.take() is first
    second.cancel_requested = True

    assert not task.group.may_go_on(0)
