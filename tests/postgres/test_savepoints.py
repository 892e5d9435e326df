"""An event shares the fate of the savepoint it was added in."""

from __future__ import annotations

import pytest
from sqlalchemy import exc, select

from tests.postgres.conftest import Setup
from tests.support.shop import Customer, Order


@pytest.mark.parametrize("flushed", [True, False])
def test_event_added_in_a_savepoint_goes_with_the_savepoint(setup: Setup, flushed: bool) -> None:
    with setup.maker.begin() as session:
        setup.outbox.add(session, "before")
        savepoint = session.begin_nested()
        setup.outbox.add(session, "inside")
        order = Order(name="i")
        order.record_event("inside-entity")
        session.add(order)
        if flushed:
            session.flush()
        savepoint.rollback()
        setup.outbox.add(session, "after")

    assert setup.types() == ["before", "after"]


def test_a_flush_in_a_savepoint_writes_what_was_added_in_it(setup: Setup) -> None:
    with setup.maker.begin() as session:
        savepoint = session.begin_nested()
        setup.outbox.add(session, "inside")
        session.add(Order(name="i"))
        session.flush()

        assert setup.outbox.pending(session) == ()
        savepoint.rollback()

    assert setup.types() == []


def test_released_savepoints_keep_their_events_in_order_and_wake_once(setup: Setup) -> None:
    with setup.maker.begin() as session:
        setup.outbox.add(session, "1")
        with session.begin_nested():
            setup.outbox.add(session, "2")
            with session.begin_nested():
                setup.outbox.add(session, "3")
            setup.outbox.add(session, "4")
        setup.outbox.add(session, "5")

    assert setup.types() == list("12345")
    assert setup.outbox.pokes == 1


def test_a_released_savepoint_goes_with_the_savepoint_around_it(setup: Setup) -> None:
    with setup.maker.begin() as session:
        setup.outbox.add(session, "a")
        outer = session.begin_nested()
        setup.outbox.add(session, "b")
        inner = session.begin_nested()
        setup.outbox.add(session, "c")
        inner.commit()
        setup.outbox.add(session, "d")
        outer.rollback()
        setup.outbox.add(session, "e")

    assert setup.types() == ["a", "e"]


def test_an_inner_savepoint_takes_only_its_own_events_along(setup: Setup) -> None:
    with setup.maker.begin() as session:
        outer = session.begin_nested()
        setup.outbox.add(session, "b")
        inner = session.begin_nested()
        setup.outbox.add(session, "c")
        setup.flush(session)
        inner.rollback()
        setup.outbox.add(session, "d")
        outer.commit()

    assert setup.types() == ["b", "d"]


def test_events_of_an_open_savepoint_go_with_the_transaction(setup: Setup) -> None:
    with setup.maker() as session:
        transaction = session.begin()
        setup.outbox.add(session, "a")
        session.begin_nested()
        setup.outbox.add(session, "b")
        transaction.rollback()

        assert setup.outbox.pending(session) == ()
        setup.outbox.add(session, "c")
        session.commit()

    assert setup.types() == ["c"]


def test_the_transactions_commit_takes_an_open_savepoint_along(setup: Setup) -> None:
    with setup.maker() as session:
        transaction = session.begin()
        setup.outbox.add(session, "a")
        session.begin_nested()
        setup.outbox.add(session, "b")
        transaction.commit()

    assert setup.types() == ["a", "b"]
    assert setup.outbox.pokes == 1


def test_the_sessions_commit_takes_an_open_savepoint_along(setup: Setup) -> None:
    with setup.maker() as session:
        setup.outbox.add(session, "a")
        session.begin_nested()
        setup.outbox.add(session, "b")
        session.commit()

    assert setup.types() == ["a", "b"]
    assert setup.outbox.pokes == 1


def test_a_callable_that_loads_is_evaluated_before_the_savepoint_exists(setup: Setup) -> None:
    with setup.maker.begin() as session:
        session.add(Customer(name="c1"))
        session.flush()
        session.add(Order(name="o", customer_id=1))

    with setup.maker.begin() as session:
        order = session.scalars(select(Order)).one()
        setup.outbox.add(session, "outer", lambda: order.customer.name)
        savepoint = session.begin_nested()
        setup.outbox.add(session, "inner")
        savepoint.rollback()

    assert setup.rows() == [("outer", "c1")]


def test_a_failed_flush_in_a_savepoint_costs_only_the_savepoints_events(setup: Setup) -> None:
    with setup.maker.begin() as session:
        session.add(Order(name="taken"))
        setup.outbox.add(session, "before")
        savepoint = session.begin_nested()
        second = Order(name="taken")
        second.record_event("second")
        session.add(second)
        setup.outbox.add(session, "inside")
        with pytest.raises(exc.IntegrityError):
            savepoint.commit()
        savepoint.rollback()
        setup.outbox.add(session, "after")

    assert setup.types() == ["before", "after"]


def test_begin_nested_that_fails_to_write_leaves_a_session_to_roll_back(setup: Setup) -> None:
    with setup.maker() as session:
        setup.outbox.add(session, "x", lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            session.begin_nested()
        session.rollback()

        assert not session.in_transaction()
        assert setup.outbox.pending(session) == ()
        setup.outbox.add(session, "y")
        session.commit()

    assert setup.types() == ["y"]


def test_begin_nested_that_fails_to_write_loses_nothing(setup: Setup) -> None:
    values: dict[str, int] = {}
    with setup.maker() as session:
        setup.outbox.add(session, "a", lambda: values["x"])
        with pytest.raises(KeyError):
            session.begin_nested()
        values["x"] = 1
        setup.outbox.add(session, "b")
        session.commit()

    assert setup.rows() == [("a", 1), ("b", None)]


def test_a_callable_may_use_a_savepoint_of_its_own(setup: Setup) -> None:
    with setup.maker.begin() as session:

        def payload() -> int | None:
            with session.begin_nested() as savepoint:
                count: int | None = session.scalar(select(1))
                savepoint.rollback()
            return count

        setup.outbox.add(session, "a", payload)
        setup.outbox.add(session, "b")

    assert setup.rows() == [("a", 1), ("b", None)]


def test_a_savepoint_for_each_row_keeps_the_order(setup: Setup) -> None:
    with setup.maker.begin() as session:
        for number in range(50):
            with session.begin_nested():
                order = Order(name=f"{number}")
                order.record_event("placed", number)
                session.add(order)

    assert setup.rows() == [("placed", number) for number in range(50)]


def test_savepoint_wakes_nobody_when_the_transaction_is_rolled_back(setup: Setup) -> None:
    with setup.maker() as session:
        with session.begin_nested():
            setup.outbox.add(session, "a")
        session.rollback()

    assert setup.types() == []
    assert setup.outbox.pokes == 0
