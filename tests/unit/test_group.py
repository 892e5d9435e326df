"""Which events share a transaction, and when it ends."""

from __future__ import annotations

from uuid import UUID

import pytest

from sa_outbox.consumer.handler.delivery import InFlight
from sa_outbox.consumer.loop.lanes import Lanes
from sa_outbox.consumer.transaction import group
from sa_outbox.consumer.transaction.group import MAX_EVENTS, Group


def make_item(position: int) -> InFlight:
    return InFlight((position, UUID(int=position), "t", None), position)


class Task:
    """A task that may go on, or not, and what it has begun."""

    def __init__(self, waiting: int = 100) -> None:
        self.lanes = Lanes()
        for position in range(waiting + 1):
            self.lanes.put(make_item(position))
        self.may_grow = True
        self.began = 0
        first = self.lanes.take()
        assert first is not None
        self.first = first
        self.group = Group([first], self.lanes, lambda: self.may_grow, self._begin)

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


def test_it_ends_with_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group, "MAX_SECONDS", 0.0)

    assert not Task().group.wants_more(0)


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
