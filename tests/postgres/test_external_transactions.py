"""Sessions in somebody else's transaction, Core savepoints, two-phase commit."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import Connection, exc, func, select

from sa_outbox.errors import TransactionEnded
from tests.postgres.conftest import Setup
from tests.support.shop import Order

MODES = ["conditional_savepoint", "rollback_only", "control_fully", "create_savepoint"]


def count(connection: Connection, setup: Setup) -> int:
    """Events as *connection* sees them, committed or not."""
    found: Any = connection.scalar(select(func.count()).select_from(setup.outbox.tables.outbox))
    assert isinstance(found, int)
    return found


@pytest.mark.parametrize("mode", MODES)
def test_a_commit_writes_the_events_into_the_outer_transaction(setup: Setup, mode: str) -> None:
    with setup.engine.connect() as connection, connection.begin():
        with setup.maker(bind=connection, join_transaction_mode=mode) as session:
            session.add(Order(name="x"))
            setup.outbox.add(session, "a")
            session.commit()

        if mode == "control_fully":
            assert setup.types() == ["a"]
        else:
            assert count(connection, setup) == 1
            assert setup.types() == []
    assert setup.types() == ["a"]
    assert setup.outbox.pokes == 1  # perhaps before it is durable: a wakeup is a hint


@pytest.mark.parametrize("mode", MODES)
def test_the_outer_rollback_decides_unless_the_session_controls_it(setup: Setup, mode: str) -> None:
    with setup.engine.connect() as connection:
        outer = connection.begin()
        with setup.maker(bind=connection, join_transaction_mode=mode) as session:
            session.add(Order(name="x"))
            setup.outbox.add(session, "a")
            session.commit()
            setup.outbox.add(session, "b")
            setup.flush(session)
            setup.outbox.add(session, "c")
        if outer.is_active:
            outer.rollback()

    assert setup.types() == (["a"] if mode == "control_fully" else [])


def test_a_rollback_of_a_joined_session_goes_back_to_its_own_savepoint(setup: Setup) -> None:
    with setup.engine.begin() as connection:
        with setup.maker(bind=connection, join_transaction_mode="create_savepoint") as session:
            setup.outbox.add(session, "a")
            session.commit()
            setup.outbox.add(session, "b")
            setup.flush(session)
            assert count(connection, setup) == 2
            session.rollback()
        assert count(connection, setup) == 1

    assert setup.types() == ["a"]


def test_a_session_that_only_flushes_leaves_its_events_to_the_outer_commit(setup: Setup) -> None:
    with setup.engine.begin() as connection:
        session = setup.maker(bind=connection)
        order = Order(name="x")
        order.record_event("e")
        session.add(order)
        setup.outbox.add(session, "a")
        session.flush()
        session.close()

    assert setup.types() == (["e", "a"])


def test_a_clean_session_that_only_flushes_leaves_its_events_to_the_outer_commit(
    setup: Setup,
) -> None:
    with setup.engine.begin() as connection:
        session = setup.maker(bind=connection, join_transaction_mode="rollback_only")
        setup.outbox.add(session, "a")
        setup.flush(session)
        session.expunge_all()
        assert setup.outbox.pending(session) == ()

    assert setup.types() == ["a"]
    session.close()


def test_a_core_savepoint_decides_about_what_was_flushed_in_it(setup: Setup) -> None:
    with setup.maker.begin() as session:
        savepoint = session.connection().begin_nested()
        order = Order(name="x")
        order.record_event("e")
        session.add(order)
        session.flush()
        savepoint.rollback()
        session.expunge(order)

    assert setup.types() == []


def test_prepared_events_appear_with_the_second_phase(setup: Setup) -> None:
    with setup.maker(twophase=True) as session:
        session.add(Order(name="x"))
        setup.outbox.add(session, "a")
        session.prepare()

        assert setup.types() == []
        assert setup.outbox.pokes == 0
        with pytest.raises(TransactionEnded):
            setup.outbox.add(session, "b")
        session.commit()

    assert setup.types() == ["a"]
    assert setup.outbox.pokes == 1


def test_prepared_events_that_are_rolled_back_never_were(setup: Setup) -> None:
    with setup.maker(twophase=True) as session:
        setup.outbox.add(session, "a")
        session.prepare()
        session.rollback()

        setup.outbox.add(session, "b")
        session.commit()

    assert setup.types() == ["b"]
    assert setup.outbox.pokes == 1


def test_a_failed_prepare_leaves_a_session_that_can_go_on(setup: Setup) -> None:
    with setup.maker.begin() as session:
        session.add(Order(name="taken"))

    with setup.maker(twophase=True) as session:
        session.add(Order(name="taken"))
        setup.outbox.add(session, "a")
        with pytest.raises(exc.IntegrityError):
            session.prepare()
        session.rollback()
        setup.outbox.add(session, "b")
        session.commit()

    assert setup.types() == ["b"]
