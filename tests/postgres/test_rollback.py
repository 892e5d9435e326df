"""What is rolled back leaves no event; what could not be written is not lost."""

from __future__ import annotations

import pytest
from sqlalchemy import exc, text
from sqlalchemy.orm import sessionmaker

from sa_outbox.errors import PendingTooLarge, TransactionEnded
from sa_outbox.settings import Limits
from tests.postgres.conftest import CountingOutbox, Setup
from tests.support.shop import Order


@pytest.mark.parametrize("flushed", [True, False])
def test_rollback_leaves_no_event(setup: Setup, flushed: bool) -> None:
    with setup.maker() as session:
        setup.outbox.add(session, "a")
        if flushed:
            setup.flush(session)
        session.rollback()
        session.commit()

    assert setup.types() == []
    assert setup.outbox.pokes == 0


@pytest.mark.parametrize("how", ["close", "reset", "invalidate"])
@pytest.mark.parametrize("flushed", [True, False])
def test_the_end_of_a_session_is_a_rollback(setup: Setup, how: str, flushed: bool) -> None:
    session = setup.maker()
    setup.outbox.add(session, "ghost")
    if flushed:
        setup.flush(session)
    getattr(session, how)()

    assert setup.outbox.pending(session) == ()
    setup.outbox.add(session, "next")
    session.commit()
    session.close()
    assert setup.types() == ["next"]


def test_the_end_of_a_session_without_statements_forgets_its_events(setup: Setup) -> None:
    session = setup.maker()
    setup.outbox.add(session, "ghost")
    session.close()
    session.commit()
    session.close()

    assert setup.types() == []


def test_add_begins_the_transaction_as_session_add_does(setup: Setup) -> None:
    with setup.maker() as session:
        setup.outbox.add(session, "x")

        with pytest.raises(exc.InvalidRequestError, match="already begun"):
            session.begin()


def test_add_waits_for_begin_where_sessions_do_not_begin_by_themselves(setup: Setup) -> None:
    with setup.maker(autobegin=False) as session:
        with pytest.raises(exc.InvalidRequestError):
            setup.outbox.add(session, "too_early")
        with session.begin():
            setup.outbox.add(session, "x")

    assert setup.types() == ["x"]


def test_after_a_failed_flush_the_session_takes_no_event_before_rollback(setup: Setup) -> None:
    with setup.maker.begin() as session:
        session.add(Order(name="taken"))

    with setup.maker() as session:
        session.add(Order(name="taken"))
        setup.outbox.add(session, "a")
        with pytest.raises(exc.IntegrityError):
            session.commit()
        with pytest.raises(TransactionEnded):
            setup.outbox.add(session, "b")
        session.rollback()
        setup.outbox.add(session, "c")
        session.commit()

    assert setup.types() == ["c"]


def test_after_a_failed_flush_another_flush_writes_nothing(setup: Setup) -> None:
    with setup.engine.connect() as connection:
        connection.begin()
        with setup.maker(bind=connection, join_transaction_mode="rollback_only") as session:
            session.add_all([Order(name="twice"), Order(name="twice")])
            setup.outbox.add(session, "a")
            with pytest.raises(exc.IntegrityError):
                session.flush()

            with pytest.raises(exc.PendingRollbackError):
                setup.flush(session)
            connection.commit()

    assert setup.types() == []


def test_a_lost_connection_takes_its_events_along_and_no_others(setup: Setup) -> None:
    with setup.maker() as session:
        setup.outbox.add(session, "x")
        pid = session.scalar(text("SELECT pg_backend_pid()"))
        with setup.engine.connect() as other:
            other.execute(text("SELECT pg_terminate_backend(:pid, 5000)"), {"pid": pid})
        with pytest.raises(exc.DBAPIError):
            session.commit()
        session.rollback()

        assert setup.outbox.pending(session) == ()
        setup.outbox.add(session, "y")
        session.commit()

    assert setup.types() == ["y"]


def test_a_callable_that_raises_in_a_commit_can_be_fixed_and_the_commit_repeated(
    setup: Setup,
) -> None:
    values: dict[str, int] = {}
    with setup.maker() as session:
        setup.outbox.add(session, "a", {"k": 1})
        setup.outbox.add(session, "b", lambda: values["x"])
        with pytest.raises(KeyError):
            session.commit()
        values["x"] = 5
        setup.outbox.add(session, "c")
        session.commit()

    assert setup.rows() == [("a", {"k": 1}), ("b", 5), ("c", None)]


def test_a_callable_that_raises_in_a_flush_fails_the_flush(setup: Setup) -> None:
    with setup.maker() as session:
        session.add(Order(name="x"))
        setup.outbox.add(session, "a", lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            session.flush()
        with pytest.raises(exc.PendingRollbackError):
            session.execute(text("SELECT 1"))
        session.rollback()
        setup.outbox.add(session, "b")
        session.commit()
        rows = session.scalar(text("SELECT count(*) FROM orders"))

    assert setup.types() == ["b"]
    assert rows == 0


def test_an_event_that_finds_no_room_leaves_those_that_wait_untouched(setup: Setup) -> None:
    outbox = CountingOutbox(limits=Limits(max_pending_bytes=500))
    with outbox.sessionmaker(setup.engine)() as session:
        waiting = session.add_event("fits", "x" * 300)
        with pytest.raises(PendingTooLarge):
            session.add_event("does_not", "x" * 300)

        assert outbox.pending(session) == (waiting,)
        session.commit()

    assert setup.types() == ["fits"]


@pytest.mark.parametrize("how", ["flush", "rollback"])
def test_flush_and_rollback_make_room(setup: Setup, how: str) -> None:
    outbox = CountingOutbox(limits=Limits(max_pending_bytes=500))
    with outbox.sessionmaker(setup.engine)() as session:
        session.add_event("first", "x" * 300)
        getattr(session, how)()
        session.add_event("second", "x" * 300)
        session.commit()

    assert setup.types() == (["first", "second"] if how == "flush" else ["second"])


def test_a_rolled_back_savepoint_makes_room(setup: Setup) -> None:
    outbox = CountingOutbox(limits=Limits(max_pending_bytes=500))
    with outbox.sessionmaker(setup.engine)() as session:
        savepoint = session.begin_nested()
        session.add_event("first", "x" * 300)
        savepoint.rollback()
        session.add_event("second", "x" * 300)
        session.commit()

    assert setup.types() == ["second"]


def test_expunged_entities_make_room(setup: Setup) -> None:
    outbox = CountingOutbox(limits=Limits(max_pending_bytes=500))
    with outbox.install(sessionmaker(setup.engine))() as session:
        order = Order(name="x")
        order.record_event("follows_its_entity", "x" * 300)
        session.add(order)
        session.expunge(order)

        assert outbox.pending(session) == ()
        outbox.add(session, "second", "x" * 300)
        session.commit()

    assert setup.types() == ["second"]
