"""Events added by a program's own SQLAlchemy hooks, before ours and after ours."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import event, select, text
from sqlalchemy.orm import Session, object_session, sessionmaker

from sa_outbox.errors import TransactionEnded
from tests.postgres.conftest import CountingOutbox, Setup
from tests.support.shop import Order


class Veto(Exception):
    """A hook refuses the commit."""


def listen(setup: Setup, name: str, hook: Callable[..., object], *, early: bool = False) -> None:
    """On the class that this test's factory has for itself: nobody else's sessions hear it."""
    event.listen(setup.maker.class_, name, hook, insert=early)


def once(work: Callable[[Session], object]) -> Callable[..., None]:
    done: list[bool] = []

    def hook(session: Session, *_: Any) -> None:
        if not done:
            done.append(True)
            work(session)

    return hook


@pytest.fixture(params=["before_insert", "after_insert"])
def mapper_hook(request: pytest.FixtureRequest) -> Iterator[Callable[[Callable[..., None]], None]]:
    """Listens on ``Order`` for the time of the test."""
    hooks: list[Callable[..., None]] = []

    def install(hook: Callable[..., None]) -> None:
        event.listen(Order, request.param, hook)
        hooks.append(hook)

    yield install
    for hook in hooks:
        event.remove(Order, request.param, hook)


@pytest.mark.parametrize("early", [True, False], ids=["before-ours", "after-ours"])
@pytest.mark.parametrize(
    "name", ["before_flush", "after_flush", "after_flush_postexec", "before_commit"]
)
def test_events_added_in_a_hook_of_a_flush_or_commit_are_written(
    setup: Setup, name: str, early: bool
) -> None:
    def add_both(session: Session) -> None:
        setup.outbox.add(session, "plain", {"x": 1})
        setup.outbox.add(session, "callable", lambda: {"x": 2})

    listen(setup, name, once(add_both), early=early)
    with setup.maker() as session:
        session.add(Order(name="q"))
        session.commit()

    assert setup.rows() == [("plain", {"x": 1}), ("callable", {"x": 2})]
    assert setup.outbox.pokes == 1


@pytest.mark.parametrize("early", [True, False], ids=["before-ours", "after-ours"])
@pytest.mark.parametrize("statement", [True, False])
def test_events_added_in_before_commit_of_a_clean_session_are_written(
    setup: Setup, early: bool, statement: bool
) -> None:
    def add_both(session: Session) -> None:
        setup.outbox.add(session, "plain", {"x": 1})
        setup.outbox.add(session, "callable", lambda: {"x": 2})

    listen(setup, "before_commit", once(add_both), early=early)
    with setup.maker() as session:
        session.begin()
        if statement:
            session.execute(text("SELECT 1"))
        session.commit()

    assert setup.types() == ["plain", "callable"]


@pytest.mark.parametrize("name", ["before_flush", "after_flush", "after_flush_postexec"])
def test_a_commit_that_does_not_flush_calls_no_flush_hook(setup: Setup, name: str) -> None:
    listen(setup, name, lambda session, *_: setup.outbox.add(session, "h"))
    with setup.maker() as session:
        session.execute(text("SELECT 1"))
        session.commit()

    assert setup.types() == []


@pytest.mark.parametrize("early", [True, False], ids=["before-ours", "after-ours"])
@pytest.mark.parametrize("name", ["after_flush_postexec", "before_commit"])
def test_events_added_in_a_hook_of_a_savepoint_share_its_fate(
    setup: Setup, name: str, early: bool
) -> None:
    listen(setup, name, once(lambda session: setup.outbox.add(session, "h")), early=early)
    with setup.maker() as session:
        outer = session.begin_nested()
        with session.begin_nested():
            session.add(Order(name="q"))
        outer.rollback()
        setup.outbox.add(session, "after")
        session.commit()

    assert setup.types() == ["after"]


def test_events_added_in_mapper_hooks_are_written(
    setup: Setup, mapper_hook: Callable[[Callable[..., None]], None]
) -> None:
    def hook(_mapper: object, _connection: object, order: Order) -> None:
        session = object_session(order)
        assert session is not None
        setup.outbox.add(session, "m", lambda: order.id)
        order.record_event("r", {"name": order.name})

    mapper_hook(hook)
    with setup.maker.begin() as session:
        session.add_all([Order(name=f"{number}") for number in range(3)])

    assert sorted(setup.types()) == ["m"] * 3 + ["r"] * 3
    assert sorted(payload for name, payload in setup.rows() if name == "m") == [1, 2, 3]


@pytest.mark.parametrize("first", ["event", "order", "statement"])
def test_events_added_in_after_begin_are_written(setup: Setup, first: str) -> None:
    listen(setup, "after_begin", lambda session, *_: setup.outbox.add(session, "began"))
    with setup.maker() as session:
        if first == "event":
            setup.outbox.add(session, "first")
        elif first == "order":
            session.add(Order(name="x"))
        else:
            session.execute(text("SELECT 1"))
        session.commit()

    assert setup.types() == (["first", "began"] if first == "event" else ["began"])


@pytest.mark.parametrize("early", [True, False], ids=["before-ours", "after-ours"])
def test_an_event_added_in_before_commit_is_written_at_once_and_the_data_before_it(
    setup: Setup, early: bool
) -> None:
    """Perhaps no hook of ours comes any more, and SQLAlchemy does not tell."""
    waiting: list[int] = []
    order = Order(name="x")

    def hook(session: Session) -> None:
        setup.outbox.add(session, "a", lambda: order.id)
        waiting.append(len(setup.outbox.pending(session)))

    listen(setup, "before_commit", hook, early=early)
    with setup.maker() as session:
        session.add(order)
        session.commit()

    assert waiting == [0]
    assert setup.rows() == [("a", 1)]


def test_a_flush_inside_before_commit_keeps_the_order(setup: Setup) -> None:
    def hook(session: Session) -> None:
        session.add(Order(name="late"))
        setup.outbox.add(session, "2")
        session.flush()
        setup.outbox.add(session, "3")

    listen(setup, "before_commit", hook)
    with setup.maker() as session:
        setup.outbox.add(session, "1")
        session.commit()

    assert setup.types() == ["1", "2", "3"]


def test_an_entity_added_in_a_late_before_commit_brings_its_events(setup: Setup) -> None:
    order = Order(name="late")
    order.record_event("placed", lambda: order.id)
    listen(setup, "before_commit", once(lambda session: session.add(order)))
    with setup.maker() as session:
        session.begin()
        session.commit()

    assert setup.rows() == [("placed", 1)]


def test_after_a_vetoed_commit_adding_writes_nothing_early(setup: Setup) -> None:
    def veto(_session: Session) -> None:
        raise Veto

    listen(setup, "before_commit", once(veto))
    with setup.maker() as session:
        setup.outbox.add(session, "a")
        with pytest.raises(Veto):
            session.commit()
        added = setup.outbox.add(session, "b")

        assert setup.outbox.pending(session) == (added,)
        session.commit()

    assert setup.types() == ["a", "b"]


def test_a_savepoint_inside_a_late_before_commit_does_not_hide_the_commit(setup: Setup) -> None:
    def hook(session: Session) -> None:
        with session.begin_nested():
            session.execute(text("SELECT 1"))
        setup.outbox.add(session, "late")

    listen(setup, "before_commit", once(hook))
    with setup.maker() as session:
        setup.outbox.add(session, "a")
        session.commit()

    assert setup.types() == ["a", "late"]


def test_adding_in_after_commit_is_refused(setup: Setup) -> None:
    refused: list[TransactionEnded] = []

    def hook(session: Session) -> None:
        with pytest.raises(TransactionEnded) as caught:
            setup.outbox.add(session, "late")
        refused.append(caught.value)

    listen(setup, "after_commit", hook)
    with setup.maker() as session:
        setup.outbox.add(session, "a")
        session.commit()

    assert len(refused) == 1
    assert setup.types() == ["a"]


def test_nothing_is_logged_as_lost_in_an_ordinary_commit(
    setup: Setup, caplog: pytest.LogCaptureFixture
) -> None:
    with setup.maker() as session:
        setup.outbox.add(session, "a")
        session.commit()

    assert [each for each in caplog.records if each.levelno >= logging.WARNING] == []


def test_a_savepoint_in_before_flush_leaves_callables_for_the_flush(setup: Setup) -> None:
    def hook(session: Session) -> None:
        with session.begin_nested():
            session.execute(text("SELECT 1"))

    listen(setup, "before_flush", once(hook))
    with setup.maker() as session:
        order = Order(name="x")
        session.add(order)
        setup.outbox.add(session, "a", lambda: order.id)
        session.commit()

    assert setup.rows() == [("a", 1)]


def test_a_savepoint_rolled_back_in_before_flush_takes_no_outer_events_along(
    setup: Setup,
) -> None:
    def hook(session: Session) -> None:
        outer = session.begin_nested()
        with session.begin_nested():
            session.execute(text("SELECT 1"))
        outer.rollback()

    listen(setup, "before_flush", once(hook))
    with setup.maker() as session:
        session.add(Order(name="x"))
        setup.outbox.add(session, "a")
        session.flush()
        session.commit()

    assert setup.types() == ["a"]


def test_a_stored_entity_attached_in_a_late_before_commit_brings_its_events(setup: Setup) -> None:
    with setup.maker.begin() as session:
        session.add(Order(name="x"))
    with setup.maker() as session:
        order = session.scalars(select(Order)).one()
    order.record_event("viewed")

    listen(setup, "before_commit", once(lambda session: session.add(order)))
    with setup.maker() as session:
        session.begin()
        session.commit()

    assert setup.types() == ["viewed"]


def test_an_event_added_in_after_begin_of_a_late_before_commit_is_refused_and_not_lost(
    setup: Setup,
) -> None:
    listen(setup, "after_begin", lambda session, *_: setup.outbox.add(session, "began"))
    listen(setup, "before_commit", once(lambda session: session.execute(text("SELECT 1"))))
    with setup.maker() as session:
        session.begin()
        with pytest.raises(TransactionEnded):
            session.commit()

    assert setup.types() == []


def test_an_event_added_in_an_early_after_transaction_end_belongs_to_the_next_transaction(
    setup: Setup,
) -> None:
    outbox = CountingOutbox()
    maker = sessionmaker(setup.engine)
    hook = once(lambda session: outbox.add(session, "next"))
    event.listen(maker.class_, "after_transaction_end", hook)
    outbox.install(maker)
    with maker() as session:
        outbox.add(session, "a")
        session.commit()
        session.commit()

    assert setup.types() == ["a", "next"]
