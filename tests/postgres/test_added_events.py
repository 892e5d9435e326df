"""``outbox_events``: what a test added, whatever becomes of its transactions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import URL, Engine, NullPool
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from sa_outbox import Event, Outbox
from sa_outbox.testing import AddedEvents, drain
from sa_outbox.testing.capture import EventCapture
from tests.support.shop import Order, OrderPlaced

from .conftest import Setup


@pytest.fixture
def events() -> Iterator[AddedEvents]:
    with EventCapture().watching() as events:
        yield events


@pytest.fixture
def outbox() -> Outbox:
    return Outbox(notify="off")


def seen(events: AddedEvents) -> list[tuple[str, Any, str]]:
    return [(each.event_type, each.stored_payload, each.state) for each in events]


def add(setup: Setup, session: Session, name: str, payload: Any = None, **options: Any) -> None:
    setup.outbox.add(session, name, payload, **options)


def test_an_event_waits_is_written_and_is_committed(setup: Setup, events: AddedEvents) -> None:
    with setup.maker() as session:
        order = Order()
        session.add(order)
        add(setup, session, "placed", lambda: {"id": order.id})
        assert seen(events) == [("placed", None, "pending")]

        setup.flush(session)
        assert seen(events) == [("placed", {"id": order.id}, "written")]

        session.commit()
        assert seen(events) == [("placed", {"id": order.id}, "committed")]


def test_what_waits_needs_no_database(events: AddedEvents, outbox: Outbox) -> None:
    session = outbox.sessionmaker()()
    session.add_event(OrderPlaced(order_id=7), key="c-1", headers={"actor_id": "8"})

    event = events.expect(OrderPlaced, order_id=7)

    assert (event.key, event.headers["actor_id"]) == ("c-1", "8")
    assert event.payload == OrderPlaced(order_id=7)
    session.close()
    assert len(events) == 0


def test_what_is_rolled_back_is_gone_and_named(setup: Setup, events: AddedEvents) -> None:
    with setup.maker() as session:
        add(setup, session, "written")
        setup.flush(session)
        add(setup, session, "waiting")
        session.rollback()
        add(setup, session, "kept")
        session.commit()

    assert events.types == ["kept"]
    with pytest.raises(AssertionError, match="rolled back: written, waiting"):
        events.expect("written")


def test_a_savepoint_takes_its_events_along_and_no_others(
    setup: Setup, events: AddedEvents
) -> None:
    with setup.maker() as session:
        add(setup, session, "before")
        with session.begin_nested():
            add(setup, session, "released")
        savepoint = session.begin_nested()
        add(setup, session, "undone")
        setup.flush(session)
        savepoint.rollback()
        add(setup, session, "after")
        session.commit()

    assert events.types == ["before", "released", "after"] == setup.types()


def test_a_commit_in_a_transaction_that_the_test_rolls_back_counts(
    setup: Setup, events: AddedEvents
) -> None:
    with setup.engine.connect() as connection, connection.begin() as transaction:
        options = {"bind": connection, "join_transaction_mode": "create_savepoint"}
        with setup.make(**options) as session:
            add(setup, session, "first")
            session.commit()
            add(setup, session, "undone")
            setup.flush(session)
            session.rollback()
            add(setup, session, "open")
            setup.flush(session)

            assert seen(events) == [("first", None, "committed"), ("open", None, "written")]
        transaction.rollback()

    assert setup.types() == []


def test_a_session_that_never_commits_leaves_it_to_the_connection(
    setup: Setup, events: AddedEvents
) -> None:
    with setup.engine.connect() as connection:
        for name in ("kept", "undone"):
            with connection.begin() as transaction:
                with setup.make(bind=connection) as session:
                    add(setup, session, name)
                    setup.flush(session)
                if name == "undone":
                    transaction.rollback()

    assert events.types == ["kept"] == setup.types()


def test_a_savepoint_of_the_connection_takes_them_along(setup: Setup, events: AddedEvents) -> None:
    with setup.engine.begin() as connection:
        for name in ("kept", "undone", "kept too"):
            savepoint = connection.begin_nested()
            with setup.make(bind=connection, join_transaction_mode="rollback_only") as session:
                add(setup, session, name.replace(" ", "_"))
                session.commit()
            savepoint.rollback() if name == "undone" else savepoint.commit()

    assert events.types == ["kept", "kept_too"] == setup.types()


def test_an_entity_that_is_added_again_has_its_event_once(
    setup: Setup, events: AddedEvents
) -> None:
    order = Order()
    order.record_event("placed")
    with setup.maker() as session:
        session.add(order)
        session.flush()
        session.rollback()
        session.add(order)
        session.commit()

    assert events.types == ["placed"] == setup.types()


def test_the_second_with_an_idempotency_key_is_not_added(setup: Setup, events: AddedEvents) -> None:
    with setup.maker.begin() as session:
        add(setup, session, "paid", 1, idempotency_key="o-1")
        add(setup, session, "paid", 2, idempotency_key="o-1")

    event = events.expect("paid")
    assert (event.payload, event.idempotency_key) == (1, "o-1")


def test_what_is_cleared_stays_away_when_it_is_written(setup: Setup, events: AddedEvents) -> None:
    with setup.maker.begin() as session:
        add(setup, session, "prepared")
        events.clear()
        add(setup, session, "acted")

    assert events.types == ["acted"]


def test_nobody_watches_after_the_test(setup: Setup) -> None:
    with EventCapture().watching() as events, setup.maker.begin() as session:
        add(setup, session, "during")
    with setup.maker.begin() as session:
        add(setup, session, "after")

    assert events.types == ["during"]


@pytest.mark.anyio
async def test_async_sessions_are_watched_alike(
    engine: Engine, migrated_url: URL, outbox: Outbox, events: AddedEvents
) -> None:
    asynchronous = create_async_engine(
        migrated_url.set(drivername="postgresql+asyncpg"), poolclass=NullPool
    )
    maker = outbox.async_sessionmaker(join_transaction_mode="create_savepoint")
    async with asynchronous.connect() as connection:
        transaction = await connection.begin()
        async with maker(bind=connection) as session:
            session.add_event("kept")
            await session.commit()
            savepoint = await session.begin_nested()
            session.add_event("undone")
            await session.flush()
            await savepoint.rollback()
            session.add_event("waiting")

            assert seen(events) == [("kept", None, "committed"), ("waiting", None, "pending")]
        await transaction.rollback()


def test_a_handler_that_fails_takes_only_its_own_events_along(
    engine: Engine, outbox: Outbox, events: AddedEvents
) -> None:
    """Several are handled in one transaction, each in a savepoint that SQLAlchemy does not see."""

    @outbox.listener("billing", on="order")
    async def bill(event: Event[Any], session: AsyncSession) -> None:
        outbox.add(session, "billed", event.payload)
        if event.payload == 4:
            raise ValueError("declined")

    with outbox.sessionmaker(engine).begin() as session:
        for number in range(6):
            session.add_event("order", number)
    events.clear()

    drain(outbox, engine)

    assert [each.payload for each in events] == [0, 1, 2, 3, 5]
