"""What is not public in SQLAlchemy and we rely on: that it is there, and means what we think."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from sqlalchemy import Connection, Engine, create_engine, event, exc, select, text
from sqlalchemy.orm import Session, SessionTransaction

from sa_outbox import OutboxSession
from sa_outbox.producer import internals
from tests.postgres.conftest import CountingOutbox
from tests.support.shop import Order


def test_autobegin_begins_as_add_does_and_returns_the_current_transaction(engine: Engine) -> None:
    with Session(engine) as session:
        begun = internals.autobegin(session)

        assert session.get_transaction() is begun
        assert internals.autobegin(session) is begun
        assert internals.autobegin(session) is not session.begin_nested()


def test_autobegin_respects_sessions_that_do_not_begin_by_themselves(engine: Engine) -> None:
    with Session(engine, autobegin=False) as session, pytest.raises(exc.InvalidRequestError):
        internals.autobegin(session)


def test_the_current_scope_is_a_savepoint_before_get_nested_transaction_knows(
    engine: Engine,
) -> None:
    seen: list[tuple[bool, bool]] = []

    class Own(Session):
        pass

    @event.listens_for(Own, "after_transaction_create")
    def created(session: Session, trans: SessionTransaction) -> None:
        if trans.nested:
            inner = internals.current_scope(session) is trans
            seen.append((inner, session.get_nested_transaction() is trans))

    with Own(engine) as session:
        assert internals.current_scope(session) is None
        session.begin_nested()

    assert seen == [(True, False)]


def test_scope_of_a_flush_is_the_transaction_around_it(engine: Engine) -> None:
    scopes: list[object] = []

    class Own(Session):
        pass

    @event.listens_for(Own, "after_flush")
    def flushed(session: Session, _context: object) -> None:
        inner = internals.autobegin(session)
        assert not inner.nested
        assert inner.parent is not None
        scopes.append(internals.scope_of(inner))

    with Own(engine) as session:
        session.add(Order(name="a"))
        session.flush()
        root = session.get_transaction()
        savepoint = session.begin_nested()
        session.add(Order(name="b"))
        session.flush()

    assert scopes == [root, savepoint]


def test_work_within_the_parent_is_sent_before_the_savepoint(engine: Engine) -> None:
    sent: list[str] = []

    def statement(_c: Any, _cursor: Any, sql: str, *_: Any) -> None:
        sent.append(sql.split(" sa_", maxsplit=1)[0])

    event.listen(engine, "before_cursor_execute", statement)
    try:
        with Session(engine) as session:
            root = internals.autobegin(session)
            nested = session.begin_nested()
            with internals.within(session, root):
                session.execute(text("SELECT 1"))
            assert internals.current_scope(session) is nested
            session.execute(text("SELECT 2"))
            nested.commit()
    finally:
        event.remove(engine, "before_cursor_execute", statement)

    assert sent == ["SELECT 1", "SAVEPOINT", "SELECT 2", "RELEASE SAVEPOINT"]


def test_is_flushing_is_true_in_a_flush_only(engine: Engine) -> None:
    seen: list[bool] = []

    class Own(Session):
        pass

    for name in ("before_flush", "after_flush_postexec", "before_commit"):
        event.listen(Own, name, lambda session, *_: seen.append(internals.is_flushing(session)))
    with Own(engine) as session:
        session.add(Order(name="a"))
        session.flush()
        session.commit()

    assert seen == [True, True, False]


def test_looking_like_a_flush_is_what_get_bind_sees_and_ends(engine: Engine) -> None:
    with Session(engine) as session:
        with internals.looking_like_a_flush(session):
            assert internals.is_flushing(session)
        assert not internals.is_flushing(session)
        with pytest.raises(ZeroDivisionError), internals.looking_like_a_flush(session):
            raise ZeroDivisionError
        assert not internals.is_flushing(session)


def test_a_transaction_takes_work_until_it_is_prepared_or_committed(engine: Engine) -> None:
    seen: list[tuple[str, str, bool]] = []

    class Own(Session):
        pass

    def note(name: str) -> None:
        def hook(session: Session, *_: object) -> None:
            trans = session._transaction
            assert trans is not None
            seen.append((name, internals.state_of(trans), internals.takes_work(trans)))

        event.listen(Own, name, hook)

    for name in ("after_begin", "before_commit", "after_commit"):
        note(name)
    with Own(engine) as session:
        session.execute(text("SELECT 1"))
        session.commit()

    assert seen == [
        ("after_begin", "provisioning_connection", True),
        ("before_commit", "active", True),
        ("after_commit", "committed", False),
    ]


def test_a_failed_flush_leaves_a_transaction_that_takes_no_work(engine: Engine) -> None:
    with Session(engine) as session:
        session.add_all([Order(name="twice"), Order(name="twice")])
        with pytest.raises(exc.IntegrityError):
            session.flush()
        trans = internals.autobegin(session)

        assert internals.state_of(trans) == "deactive"
        assert not internals.takes_work(trans)


def test_a_prepared_transaction_takes_no_work(engine: Engine) -> None:
    with Session(engine, twophase=True) as session:
        session.execute(text("SELECT 1"))
        session.prepare()
        trans = internals.autobegin(session)

        assert internals.state_of(trans) == "prepared"
        assert not internals.takes_work(trans)
        session.rollback()


def test_is_committing_from_before_commit_until_the_commit_is_sent(engine: Engine) -> None:
    seen: dict[str, list[bool]] = {}

    class Own(Session):
        pass

    def note(name: str) -> None:
        def hook(session: Session, *_: object) -> None:
            seen.setdefault(name, []).append(internals.is_committing(session))

        event.listen(Own, name, hook)

    for name in ("before_commit", "after_flush_postexec", "after_commit"):
        note(name)
    with Own(engine) as session:
        assert not internals.is_committing(session)
        session.add(Order(name="a"))
        session.flush()
        session.begin_nested().commit()
        session.add(Order(name="b"))
        session.commit()

    assert seen == {
        "before_commit": [True, True],
        "after_flush_postexec": [False, True],
        "after_commit": [False, False],
    }


def test_a_commit_goes_on_after_a_savepoint_inside_its_hook(engine: Engine) -> None:
    seen: list[bool] = []

    class Own(Session):
        pass

    @event.listens_for(Own, "before_commit")
    def before_commit(session: Session) -> None:
        if session.get_nested_transaction() is None:
            session.begin_nested().commit()
            seen.append(internals.is_committing(session))

    with Own(engine) as session:
        session.begin()
        session.commit()

    assert seen == [True]


def test_is_committing_is_over_when_a_hook_refuses_the_commit(engine: Engine) -> None:
    class Own(Session):
        pass

    @event.listens_for(Own, "before_commit")
    def veto(_session: Session) -> None:
        raise ZeroDivisionError

    with Own(engine) as session:
        session.begin()
        with pytest.raises(ZeroDivisionError):
            session.commit()

        assert not internals.is_committing(session)


def test_connection_for_is_the_connection_that_the_session_gives(engine: Engine) -> None:
    with Session(engine) as session:
        taken = internals.connection_for(session, engine)
        assert taken is session.connection()
        assert internals.connection_for(session, engine) is taken

        session.begin_nested()
        assert internals.connection_for(session, engine) is session.connection()
        assert taken.in_nested_transaction()


def test_a_session_with_one_engine_uses_no_other(engine: Engine) -> None:
    class Routing(Session):
        def get_bind(self, *_: Any, **__: Any) -> Engine:
            return engine

    assert not internals.may_use_several_binds(Session(engine))
    assert not internals.may_use_several_binds(OutboxSession(engine))
    assert internals.may_use_several_binds(Session())
    assert internals.may_use_several_binds(Session(engine, binds={Order: engine}))
    assert internals.may_use_several_binds(Routing(engine))


def test_is_autocommit_asks_the_connection_and_then_its_engine(engine: Engine) -> None:
    whole = create_engine(engine.url, isolation_level="AUTOCOMMIT")
    with engine.connect() as plain, whole.connect() as by_engine:
        assert not internals.is_autocommit(plain)
        assert internals.is_autocommit(by_engine)
    with engine.connect() as plain, whole.connect() as by_engine:
        plain.execution_options(isolation_level="AUTOCOMMIT")
        by_engine.execution_options(isolation_level="SERIALIZABLE")
        assert internals.is_autocommit(plain)
        assert not internals.is_autocommit(by_engine)
    whole.dispose()


def test_bind_arguments_are_emptied_by_sqlalchemy(engine: Engine) -> None:
    """Why each write passes a dictionary of its own."""
    arguments = {"bind": engine}
    with Session(engine) as session:
        session.connection(bind_arguments=arguments)

    assert arguments == {}


def test_reads_flush_by_way_of_autoflush_and_flush_does_not(engine: Engine) -> None:
    calls: list[str] = []

    class Own(OutboxSession):
        def _autoflush(self) -> None:
            calls.append("autoflush")
            super()._autoflush()

        def flush(self, objects: Any = None) -> None:
            calls.append("flush, automatic" if self._autoflushing else "flush")
            super().flush(objects)

    with Own(engine, outbox=CountingOutbox()) as session:
        session.add(Order(name="a"))
        session.scalars(select(Order)).all()
        session.flush()

        assert calls == ["autoflush", "flush, automatic", "flush"]
        assert not session._autoflushing


def test_a_failed_block_within_the_parent_leaves_no_savepoint_behind(engine: Engine) -> None:
    with Session(engine) as session:
        root = internals.autobegin(session)
        session.begin_nested()
        with pytest.raises(ZeroDivisionError), internals.within(session, root):
            raise ZeroDivisionError

        assert internals.current_scope(session) is root


def test_a_session_is_clean_when_a_flush_has_come_to_its_last_hook(engine: Engine) -> None:
    seen: list[tuple[str, bool]] = []

    class Own(Session):
        pass

    def note(name: str) -> None:
        event.listen(
            Own, name, lambda session, *_: seen.append((name, internals.is_clean(session)))
        )

    for name in ("before_flush", "after_flush", "after_flush_postexec"):
        note(name)
    with Own(engine) as session:
        order = Order(name="a")
        session.add(order)
        session.flush()
        order.name = "b"
        session.flush()
        session.delete(order)
        session.flush()

    assert (
        seen
        == [
            ("before_flush", False),
            ("after_flush", False),
            ("after_flush_postexec", True),
        ]
        * 3
    )


def test_a_commit_is_seen_through_the_making_of_a_connection(engine: Engine) -> None:
    seen: list[tuple[bool, bool]] = []

    class Own(Session):
        pass

    @event.listens_for(Own, "after_begin")
    def began(session: Session, *_: object) -> None:
        seen.append((internals.is_committing(session), internals.is_called_by_a_commit(session)))

    with Own(engine) as session:
        session.execute(text("SELECT 1"))
        session.commit()
    with Own(engine) as session:
        event.listen(session, "before_commit", lambda session: session.execute(text("SELECT 1")))
        session.begin()
        session.commit()

    assert seen == [(False, False), (False, True)]


def test_a_session_with_one_engine_has_one_bind(engine: Engine) -> None:
    class Routing(Session):
        def get_bind(self, *args: Any, **options: Any) -> Engine:
            return engine

    assert not internals.may_use_several_binds(Session(engine))
    assert internals.may_use_several_binds(Session())
    assert internals.may_use_several_binds(Session(engine, binds={Order: engine}))
    assert internals.may_use_several_binds(Routing(engine))


def test_the_connection_of_the_scope_is_the_one_the_session_would_give(engine: Engine) -> None:
    with Session(engine) as session:
        first = internals.connection_for(session, engine)
        assert first is session.connection()
        session.begin_nested()

        assert internals.connection_for(session, engine) is first
        assert first.in_nested_transaction()


def test_the_savepoints_of_a_connection_have_the_names_that_its_events_report(
    engine: Engine,
) -> None:
    undone: list[str] = []
    with engine.connect() as connection, connection.begin():
        event.listen(connection, "rollback_savepoint", lambda _, name, __: undone.append(name))
        outer = connection.begin_nested()
        inner = connection.begin_nested()
        names = internals.savepoints_of(connection)
        inner.rollback()
        outer.rollback()

        assert names == undone
        assert len(names) == 2
        assert internals.savepoints_of(connection) == []


WAYS_TO_COMMIT: dict[str, Callable[[Session], object]] = {
    "session.commit()": Session.commit,
    "session.get_transaction().commit()": lambda session: current(
        session.get_transaction()
    ).commit(),
    "connection.commit()": lambda session: session.connection().commit(),
    "connection.get_transaction().commit()": lambda session: current(
        session.connection().get_transaction()
    ).commit(),
}
T = TypeVar("T")


def current(found: T | None) -> T:
    assert found is not None
    return found


def refuse(_connection: Connection) -> None:
    raise PermissionError


@pytest.fixture(params=["by the private method", "by the event"])
def guard(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "by the event":
        monkeypatch.setattr(internals, "_COMMIT", "_not_in_this_release")


@pytest.mark.usefixtures("guard")
@pytest.mark.parametrize("way", WAYS_TO_COMMIT.values(), ids=WAYS_TO_COMMIT)
def test_a_guarded_connection_is_not_committed_in_any_way(
    way: Callable[[Session], object], engine: Engine
) -> None:
    with Session(engine) as session:
        session.add(Order(name="x"))
        session.flush()
        internals.guard_commit(session.connection(), refuse)

        with pytest.raises(PermissionError):
            way(session)
        session.invalidate()

    with Session(engine) as session:
        assert session.scalars(select(Order)).all() == []


def test_a_commit_that_is_refused_reaches_no_event_and_one_that_is_not_reaches_all(
    engine: Engine,
) -> None:
    committed: list[Connection] = []
    with engine.connect() as connection:
        event.listen(connection, "commit", committed.append)
        internals.guard_commit(connection, refuse)
        connection.execute(text("SELECT 1"))
        with pytest.raises(PermissionError):
            connection.commit()
        assert committed == []

        connection.rollback()
        internals.unguard_commit(connection)
        connection.execute(text("SELECT 1"))
        connection.commit()
        assert committed == [connection]


def test_a_guarded_connection_releases_savepoints_and_has_no_events(engine: Engine) -> None:
    with engine.connect() as connection:
        internals.guard_commit(connection, refuse)
        with connection.begin_nested():
            connection.execute(text("SELECT 1"))

        assert not connection._has_events
        internals.unguard_commit(connection)
        assert "_commit_impl" not in vars(connection)
