"""What the side that adds events tells of itself: what was committed, once for each commit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Engine

from sa_outbox import Outbox, OutboxSession
from sa_outbox.observe import EventsAdded, Observation
from tests.support.shop import Order

from .conftest import CountingOutbox


class Observed:
    """An outbox, its session, and what it told."""

    def __init__(self, outbox: Outbox, engine: Engine) -> None:
        self.told: list[Observation] = []
        outbox.observers.add(self.told.append)
        self.sessions = outbox.sessionmaker(engine)

    @property
    def added(self) -> list[dict[str, int]]:
        return [each.events for each in self.told if isinstance(each, EventsAdded)]


@pytest.fixture
def observed(engine: Engine) -> Observed:
    return Observed(CountingOutbox(), engine)


@pytest.fixture
def session(observed: Observed) -> Iterator[OutboxSession]:
    with observed.sessions() as session:
        yield session


def test_a_commit_tells_once_how_many_events_of_each_type_it_has(
    observed: Observed, session: OutboxSession
) -> None:
    session.add_event("order.placed", {})
    session.flush()
    session.add_event("order.placed", {})
    session.add_event("order.paid", {})
    assert observed.added == [], "nothing is committed yet"
    session.commit()
    session.commit()
    session.add_event("order.paid", {})
    session.commit()

    assert observed.added == [{"order.placed": 2, "order.paid": 1}, {"order.paid": 1}]


def test_what_is_rolled_back_is_not_counted(observed: Observed, session: OutboxSession) -> None:
    session.add_event("order.placed", {})
    session.flush()
    session.rollback()
    session.add_event("order.paid", {})
    session.commit()

    assert observed.added == [{"order.paid": 1}]


def test_a_savepoint_that_is_rolled_back_takes_its_count_along(
    observed: Observed, session: OutboxSession
) -> None:
    session.add_event("order.placed", {})
    with session.begin_nested():
        session.add_event("order.kept", {})
        with session.begin_nested() as inner:
            session.add_event("order.lost", {})
            session.flush()
            inner.rollback()
        with session.begin_nested():
            session.add_event("order.kept", {})
    with session.begin_nested() as outer:
        with session.begin_nested():
            session.add_event("order.lost", {})
        outer.rollback()
    session.commit()

    assert observed.added == [{"order.placed": 1, "order.kept": 2}]


def test_a_duplicate_is_not_counted(observed: Observed, session: OutboxSession) -> None:
    for _ in range(2):
        session.add_event("order.placed", {}, idempotency_key="o-1")
        session.commit()

    assert observed.added == [{"order.placed": 1}]


def test_an_event_recorded_on_an_entity_is_counted(
    observed: Observed, session: OutboxSession
) -> None:
    order = Order(name="A-1")
    order.record_event("order.placed", {})
    session.add(order)
    session.commit()

    assert observed.added == [{"order.placed": 1}]


def test_an_observer_that_raises_stops_neither_the_commit_nor_the_wakeup(engine: Engine) -> None:
    outbox = CountingOutbox()
    told: list[Any] = []

    def broken(observation: Observation) -> None:
        told.append(observation)
        raise RuntimeError("the metric is broken")

    outbox.observers.add(broken)
    with outbox.sessionmaker(engine).begin() as session:
        session.add_event("order.placed", {})

    assert len(told) == 1
    assert outbox.pokes == 1
