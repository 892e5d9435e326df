"""Where the events go when a session has several engines, an odd one, or none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import URL, Delete, Engine, Update, create_engine, exc, select, text
from sqlalchemy.orm import Session, sessionmaker

from sa_outbox.errors import ConfigError, NotAtomic, SchemaError
from tests.postgres.conftest import CountingOutbox, Setup
from tests.support.shop import Base, Customer, Order


@pytest.fixture
def other(new_database: Callable[[], URL]) -> Iterator[Engine]:
    """A second database, with the shop and without an outbox."""
    engine = create_engine(new_database().set(drivername="postgresql+psycopg"))
    Base.metadata.create_all(engine)
    yield engine
    engine.dispose()


def names(engine: Engine) -> list[str | None]:
    with engine.connect() as connection:
        return list(connection.scalars(select(Order.name)))


def refused(setup: Setup, session: Session) -> None:
    setup.outbox.add(session, "a")
    with pytest.raises(NotAtomic):
        session.commit()
    session.rollback()
    assert setup.types() == []


def test_autocommit_of_an_engines_options_is_refused(setup: Setup) -> None:
    autocommit = setup.engine.execution_options(isolation_level="AUTOCOMMIT")
    with setup.maker(bind=autocommit) as session:
        refused(setup, session)


def test_autocommit_of_a_whole_engine_is_refused(setup: Setup) -> None:
    autocommit = create_engine(setup.engine.url, isolation_level="AUTOCOMMIT")
    with setup.maker(bind=autocommit) as session:
        refused(setup, session)
    autocommit.dispose()


def test_autocommit_of_a_sessions_connection_is_refused(setup: Setup) -> None:
    with setup.maker() as session:
        session.connection(execution_options={"isolation_level": "AUTOCOMMIT"})
        refused(setup, session)


def test_autocommit_of_the_driver_is_refused(setup: Setup) -> None:
    autocommit = create_engine(setup.engine.url, connect_args={"autocommit": True})
    try:
        with setup.maker(bind=autocommit) as session:
            refused(setup, session)
    finally:
        autocommit.dispose()


def test_a_transaction_on_an_engine_in_autocommit_is_accepted(setup: Setup) -> None:
    engine = create_engine(setup.engine.url, isolation_level="AUTOCOMMIT")
    with setup.maker(bind=engine) as session:
        session.connection(execution_options={"isolation_level": "READ COMMITTED"})
        setup.outbox.add(session, "a")
        session.commit()
    engine.dispose()

    assert setup.types() == ["a"]


def test_a_read_only_session_reads_but_takes_no_event(setup: Setup) -> None:
    reading = setup.engine.execution_options(
        postgresql_readonly=True, isolation_level="REPEATABLE READ"
    )
    with setup.maker(bind=reading) as session:
        session.execute(select(Order))
        session.commit()
        setup.outbox.add(session, "a")
        with pytest.raises(SchemaError, match="read-only"):
            session.commit()

    assert setup.types() == []


def test_without_a_bind_the_commit_says_so(setup: Setup) -> None:
    with setup.maker(bind=None) as session:
        setup.outbox.add(session, "a")
        with pytest.raises(ConfigError, match=r"no engine for the outbox's table") as caught:
            session.commit()

    assert isinstance(caught.value.__cause__, exc.UnboundExecutionError)


def test_binds_without_the_outboxs_table_are_refused_where_the_event_is_added(
    setup: Setup,
) -> None:
    with setup.maker(bind=None, binds={Base: setup.engine}) as session:
        session.add(Order(name="x"))
        with pytest.raises(ConfigError, match=r"binds=\{\.\.\., outbox\.tables\.outbox: engine\}"):
            setup.outbox.add(session, "a")
        session.commit()

    assert names(setup.engine) == ["x"], "nothing of the data is lost"
    assert setup.types() == []


def test_binds_without_the_outboxs_table_are_refused_for_an_entitys_event(setup: Setup) -> None:
    with setup.maker(bind=None, binds={Base: setup.engine}) as session:
        order = Order(name="x")
        order.record_event("a")
        session.add(order)
        with pytest.raises(ConfigError, match=r"none for the outbox's table 'outbox'"):
            session.commit()

    assert names(setup.engine) == []


def test_the_bind_of_the_log_serves_every_question_to_the_outbox(setup: Setup) -> None:
    outbox, log = setup.outbox, setup.outbox.tables.outbox
    with setup.maker(bind=None, binds={Base: setup.engine, log: setup.engine}) as session:
        added = outbox.add(session, "a")
        session.commit()
        with outbox.inbox.once(session, "m", consumer="c") as first:
            assert first
        assert outbox.status(session, added.event_id).event_id == added.event_id
    with (
        setup.maker(bind=None, binds={Base: setup.engine}) as session,
        pytest.raises(ConfigError, match="outbox's table"),
    ):
        outbox.status(session, added.event_id)


def test_the_bind_of_the_log_is_found_among_several(setup: Setup) -> None:
    other = create_engine("sqlite://")
    log = setup.outbox.tables.outbox
    with setup.maker(bind=None, binds={Order: other, log: setup.engine}) as session:
        setup.outbox.add(session, "a")
        session.commit()
    with setup.maker(bind=other, binds={log: setup.engine}) as session:
        setup.outbox.add(session, "b")
        session.commit()
    other.dispose()

    assert setup.types() == ["a", "b"]


def routing(setup: Setup, leader: Engine, follower: Engine) -> sessionmaker[Any]:
    """The leader and follower recipe of SQLAlchemy's documentation."""

    def get_bind(
        self: Session, mapper: object = None, clause: object = None, **_: object
    ) -> Engine:
        writes = self._flushing or isinstance(clause, (Update, Delete))
        return leader if writes else follower

    if setup.form == "factory":
        maker: sessionmaker[Any] = setup.outbox.sessionmaker(
            class_=type("Routing", (setup.session_class,), {"get_bind": get_bind})
        )
        return maker
    plain: sessionmaker[Any] = sessionmaker(
        class_=type("Routing", (Session,), {"get_bind": get_bind})
    )
    return setup.outbox.install(plain)


def test_a_router_sends_events_to_the_leader(setup: Setup) -> None:
    follower = setup.engine.execution_options(
        postgresql_readonly=True, isolation_level="REPEATABLE READ"
    )
    with routing(setup, setup.engine, follower)() as session:
        session.scalars(select(Order)).all()
        setup.outbox.add(session, "a")
        session.commit()

    assert setup.types() == ["a"]


def test_a_router_may_send_reads_to_another_server(setup: Setup, other: Engine) -> None:
    with routing(setup, setup.engine, other)() as session:
        session.scalars(select(Order)).all()
        session.add(Order(name="x"))
        setup.outbox.add(session, "a")
        session.commit()

    assert names(setup.engine) == ["x"]
    assert setup.types() == ["a"]


@pytest.fixture
def tenant(engine: Engine) -> Iterator[Engine]:
    """The engine as seen by a tenant with a schema, and a log, of its own."""
    with engine.begin() as connection:
        connection.execute(text("CREATE SCHEMA tenant1"))
        connection.execute(text("CREATE TABLE tenant1.outbox (LIKE outbox INCLUDING ALL)"))
    yield engine.execution_options(schema_translate_map={None: "tenant1"})
    with engine.begin() as connection:
        connection.execute(text("DROP SCHEMA tenant1 CASCADE"))


def test_schema_translate_map_moves_an_outbox_without_a_schema(
    setup: Setup, tenant: Engine
) -> None:
    with setup.maker(bind=tenant) as session:
        setup.outbox.add(session, "a")
        session.commit()
        moved = session.scalar(text("SELECT count(*) FROM tenant1.outbox"))

    assert moved == 1
    assert setup.types() == []


def test_schema_translate_map_leaves_an_outbox_with_a_schema(setup: Setup, tenant: Engine) -> None:
    outbox = CountingOutbox(schema="public")
    with outbox.sessionmaker(tenant).begin() as session:
        session.add_event("a")

    assert setup.types() == ["a"]


def test_data_of_another_database_in_the_same_flush_is_refused(setup: Setup, other: Engine) -> None:
    with setup.maker(binds={Order: other}) as session:
        session.add(Order(name="x"))
        setup.outbox.add(session, "a")
        with pytest.raises(NotAtomic):
            session.commit()
        session.rollback()

    assert names(other) == []
    assert setup.types() == []


def test_data_of_both_databases_in_the_same_flush_is_refused(setup: Setup, other: Engine) -> None:
    with setup.maker(binds={Order: other}) as session:
        session.add_all([Order(name="x"), Customer(name="here")])
        setup.outbox.add(session, "a")
        with pytest.raises(NotAtomic):
            session.commit()
        session.rollback()

    assert names(other) == []
    assert setup.types() == []


def test_reading_another_database_is_no_harm(setup: Setup, other: Engine) -> None:
    with setup.maker(binds={Order: other}) as session:
        session.scalars(select(Order)).all()
        session.add(Customer(name="here"))
        setup.outbox.add(session, "a")
        session.commit()

    assert setup.types() == ["a"]


def test_two_phases_make_two_databases_atomic(setup: Setup, other: Engine) -> None:
    with setup.maker(binds={Order: other}, twophase=True) as session:
        session.add_all([Order(name="x"), Customer(name="here")])
        setup.outbox.add(session, "a")
        session.commit()

    assert names(other) == ["x"]
    assert setup.types() == ["a"]


def test_an_entity_of_another_database_may_be_referred_to(setup: Setup, other: Engine) -> None:
    for engine in (setup.engine, other):
        with Session(engine) as plain:
            plain.add(Customer(name="c"))
            plain.commit()

    with setup.maker(binds={Customer: other}) as session:
        customer = session.scalars(select(Customer)).one()
        session.add(Order(name="x", customer=customer))
        setup.outbox.add(session, "a")
        session.commit()

    assert setup.types() == ["a"]
