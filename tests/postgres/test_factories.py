"""Which sessions have hooks: those of the factory or class they were installed on, no others."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import pytest
from sqlalchemy import URL, Engine, NullPool, event
from sqlalchemy.ext.asyncio import (
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from sa_outbox import AsyncOutboxSession, Outbox, OutboxSession
from sa_outbox.errors import ConfigError, NotInstalled
from sa_outbox.producer.install import session_class
from sa_outbox.producer.notifier import notifier
from tests.postgres.conftest import CountingOutbox, Setup
from tests.support.shop import Order


def test_a_scoped_session_takes_events_and_forgets_them_with_remove(setup: Setup) -> None:
    scoped = scoped_session(setup.maker)
    setup.outbox.add(scoped, "a")
    scoped.commit()
    setup.outbox.add(scoped, "ghost")
    scoped.remove()
    scoped.commit()
    scoped.remove()

    assert setup.types() == ["a"]


def test_a_scoped_session_that_is_closed_and_used_again_has_no_ghosts(setup: Setup) -> None:
    scoped = scoped_session(setup.maker)
    setup.outbox.add(scoped, "ghost")
    scoped.close()
    setup.outbox.add(scoped, "b")
    setup.outbox.flush(scoped)
    scoped.commit()
    scoped.remove()

    assert setup.types() == ["b"]


@pytest.mark.parametrize("what", ["maker", "scoped", "class", "base class"])
def test_install_reaches_the_sessions_of_its_target(setup: Setup, what: str) -> None:
    outbox = CountingOutbox()
    base: Any = type("Base", (Session,), {})
    maker: sessionmaker[Any] = sessionmaker(setup.engine, class_=base)
    scoped = scoped_session(maker)
    targets = {"maker": maker, "scoped": scoped, "class": maker.class_, "base class": base}

    assert outbox.install(targets[what]) is targets[what]
    with maker() as session:
        outbox.add(session, "a")
        session.commit()

    assert setup.types() == ["a"]


def test_sessions_without_hooks_refuse_events(setup: Setup) -> None:
    for plain in (Session(setup.engine), sessionmaker(setup.engine)()):
        with plain as session, pytest.raises(NotInstalled):
            setup.outbox.add(session, "a")


def test_install_stays_with_its_target(setup: Setup) -> None:
    outbox = CountingOutbox()
    base = type("Base", (Session,), {})
    outbox.install(sessionmaker(setup.engine, class_=base))

    assert not outbox.is_installed_on(base)
    assert not outbox.is_installed_on(Session)


def test_another_outbox_is_not_installed(setup: Setup) -> None:
    with setup.maker() as session, pytest.raises(NotInstalled):
        CountingOutbox().add(session, "a")


@pytest.mark.parametrize("target", [Order, "Session", object(), None])
def test_install_refuses_what_makes_no_sessions(target: object) -> None:
    with pytest.raises(ConfigError):
        CountingOutbox().install(target)


def test_installing_twice_is_installing_once(setup: Setup) -> None:
    setup.outbox.install(setup.maker)
    setup.outbox.install(setup.maker.class_)
    below = setup.outbox.install(type("Below", (setup.maker.class_,), {}))
    options = {"outbox": setup.outbox} if setup.form == "factory" else {}
    with below(setup.engine, **options) as session:
        setup.outbox.add(session, "a")
        session.commit()

    assert setup.types() == ["a"]
    assert setup.outbox.pokes == 1


def test_hooks_on_a_class_and_on_its_base_do_everything_once(setup: Setup) -> None:
    outbox = CountingOutbox()
    base = type("Base", (Session,), {})
    below = type("Below", (base,), {})
    outbox.install(below)
    outbox.install(base)
    with below(setup.engine) as session:
        order = Order(name="n")
        order.record_event("1")
        session.add(order)
        outbox.add(session, "2")
        with session.begin_nested():
            outbox.add(session, "3")
        session.commit()

    assert setup.types() == ["1", "2", "3"]
    assert outbox.pokes == 1


def test_two_outboxes_share_a_session(setup: Setup) -> None:
    second = CountingOutbox()
    second.install(setup.maker)
    with setup.maker() as session:
        setup.outbox.add(session, "a")
        second.add(session, "b")
        assert [each.event_type for each in second.pending(session)] == ["b"]
        session.commit()

    assert sorted(setup.types()) == ["a", "b"]
    assert (setup.outbox.pokes, second.pokes) == (1, 1)


@pytest.mark.parametrize("own", [0, 1], ids=["hooked-first", "hooked-last"])
def test_entities_record_for_the_outbox_of_their_own_session(engine: Engine, own: int) -> None:
    outboxes = CountingOutbox(), CountingOutbox()

    class Direct(OutboxSession):
        pass

    for each in outboxes:
        Direct(engine, outbox=each).close()
    with Direct(engine, outbox=outboxes[own]) as session:
        order = Order(name="x")
        recorded = order.record_event("e")
        session.add(order)

        assert outboxes[own].pending(session) == (recorded,)
        assert outboxes[1 - own].pending(session) == ()


def test_a_session_made_by_hand_leaves_the_sessions_of_a_factory_alone(engine: Engine) -> None:
    first, second = CountingOutbox(), CountingOutbox()

    class Direct(OutboxSession):
        pass

    Direct(engine, outbox=first).close()
    with second.sessionmaker(engine, class_=Direct)() as session:
        order = Order(name="x")
        recorded = order.record_event("e")
        session.add(order)

        assert second.pending(session) == (recorded,)


def test_an_outbox_session_made_by_hand_has_hooks(setup: Setup) -> None:
    class Direct(OutboxSession):
        pass

    with Direct(setup.engine, outbox=setup.outbox) as session:
        session.add_event("a")
        session.commit()

    assert setup.types() == ["a"]


def test_an_outbox_session_without_an_outbox_refuses_events(engine: Engine) -> None:
    OutboxSession(engine, outbox=CountingOutbox()).close()  # hooks the class, for itself alone
    with sessionmaker(engine, class_=OutboxSession)() as session:
        with pytest.raises(NotInstalled):
            session.add_event("a")
        order = Order(name="x")
        session.add(order)
        with pytest.raises(NotInstalled):
            order.record_event("e")


def test_the_info_of_a_factory_is_not_shared(setup: Setup) -> None:
    setup.maker.configure(info={"user": 1})
    with setup.maker() as first, setup.maker() as second:
        setup.outbox.add(first, "x")

        assert setup.outbox.pending(second) == ()
        assert second.info == {"user": 1}


def test_a_session_is_freed_without_the_garbage_collector(setup: Setup) -> None:
    gc.collect()
    gc.disable()
    try:
        session = setup.maker()
        setup.outbox.add(session, "a")
        session.commit()
        session.close()
        reference = weakref.ref(session)
        del session

        assert reference() is None
    finally:
        gc.enable()


def test_threads_keep_each_their_order(setup: Setup) -> None:
    def work(thread: int) -> None:
        for round_ in range(5):
            with setup.maker.begin() as session:
                for number in range(3):
                    setup.outbox.add(session, "t", [thread, round_, number])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()

    payloads = [payload for _, payload in setup.rows()]
    assert len(payloads) == 60
    for number in range(4):
        own = [payload for payload in payloads if payload[0] == number]
        assert own == sorted(own)


# Asynchronous factories: here only where the hooks go; test_async_sessions.py runs them.


@pytest.fixture
def async_maker(migrated_url: URL) -> async_sessionmaker[AsyncSession]:
    url = migrated_url.set(drivername="postgresql+asyncpg")
    return async_sessionmaker(create_async_engine(url, poolclass=NullPool))


@pytest.mark.parametrize("scoped", [True, False])
def test_install_gives_an_async_factory_a_sync_class_of_its_own(
    async_maker: async_sessionmaker[AsyncSession], scoped: bool
) -> None:
    outbox = CountingOutbox()
    target: Any = async_scoped_session(async_maker, scopefunc=int) if scoped else async_maker
    outbox.install(target)
    outbox.install(target)

    own = async_maker.kw["sync_session_class"]
    assert outbox.is_installed_on(own)
    assert own.__mro__[1] is Session
    assert not outbox.is_installed_on(Session)
    outbox.add(async_maker(), "a")


def test_install_on_an_async_factory_stays_there(
    async_maker: async_sessionmaker[AsyncSession],
) -> None:
    outbox = CountingOutbox()
    outbox.install(async_maker)
    stranger = async_sessionmaker(async_maker.kw["bind"])

    with pytest.raises(NotInstalled):
        outbox.add(stranger(), "a")


def test_install_on_an_async_session_class_stays_there() -> None:
    outbox = CountingOutbox()
    cls = type("Own", (AsyncSession,), {})
    outbox.install(cls)
    outbox.install(cls)

    outbox.add(cls(), "a")
    assert AsyncSession.sync_session_class is Session
    assert not outbox.is_installed_on(Session)


@pytest.mark.parametrize("inherited", [Session, OutboxSession])
def test_an_async_session_class_never_lends_its_sync_class_to_be_hooked(
    inherited: type[Session],
) -> None:
    cls = type("Own", (AsyncSession,), {"sync_session_class": inherited})

    assert session_class(cls) is not inherited


@pytest.mark.parametrize("form", ["sync", "async"])
def test_the_factories_of_an_outbox_stay_apart(engine: Engine, form: str) -> None:
    first, second = Outbox(notify="off"), Outbox(notify="off")
    if form == "sync":
        hooked = first.sessionmaker(engine).class_
    else:
        hooked = first.async_sessionmaker().kw["sync_session_class"]

    assert first.is_installed_on(hooked)
    assert not first.is_installed_on(OutboxSession)
    assert not second.is_installed_on(hooked)
    assert AsyncOutboxSession.sync_session_class is OutboxSession


def test_a_factory_can_be_told_another_class(setup: Setup) -> None:
    class Own(OutboxSession):
        pass

    with setup.outbox.sessionmaker(setup.engine, class_=Own).begin() as session:
        assert isinstance(session, Own)
        session.add_event("a")

    assert setup.types() == ["a"]


def test_an_exception_in_another_after_commit_hook_is_why_ours_must_not_raise(
    setup: Setup,
) -> None:
    """SQLAlchemy leaves the transaction unclosed and its connection checked out."""

    def hook(_session: Session) -> None:
        raise RuntimeError

    event.listen(setup.maker.class_, "after_commit", hook)
    with setup.maker() as session:
        setup.outbox.add(session, "a")
        with pytest.raises(RuntimeError):
            session.commit()

        assert session.in_transaction()
        assert not session.get_transaction().is_active
    assert setup.types() == ["a"]


def test_a_failing_wakeup_does_not_break_the_commit(
    setup: Setup, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(notifier, "_add_target", fail)
    with Outbox(channel="not_seen_before").sessionmaker(setup.engine)() as session:
        session.add_event("a")
        session.commit()

        assert not session.in_transaction()
    assert setup.types() == ["a"]
    assert "a poke failed" in caplog.text


def test_a_session_class_may_have_an_outbox_attribute_of_its_own(engine: Engine) -> None:
    class Homemade(Session):
        outbox: tuple[str, ...] = ("a list of things to send",)

    outbox = CountingOutbox()
    outbox.install(Homemade)
    with Homemade(engine) as session:
        order = Order(name="x")
        recorded = order.record_event("before")
        session.add(order)
        later = order.record_event("after")

        assert outbox.pending(session) == (recorded, later)
