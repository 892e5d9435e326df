"""``on_duplicate="raise"``: the flush that would write a duplicate raises, and nothing is kept."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import URL, Engine, NullPool, select, text
from sqlalchemy.exc import PendingRollbackError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import sessionmaker

from sa_outbox import Event, Outbox, OutboxSession
from sa_outbox.errors import DuplicateEvent, InvalidEvent
from tests.postgres.conftest import CountingOutbox
from tests.support.shop import Order, OrderPlaced


@pytest.fixture
def outbox() -> CountingOutbox:
    return CountingOutbox()


@pytest.fixture
def sessions(outbox: CountingOutbox, engine: Engine) -> sessionmaker[OutboxSession]:
    return outbox.sessionmaker(engine)


@pytest.fixture
def first(sessions: sessionmaker[OutboxSession]) -> Event[Any]:
    """An event that has the key ``k`` already."""
    with sessions.begin() as session:
        return session.add_event("order.placed", "first", idempotency_key="k")


def again(session: OutboxSession, **options: Any) -> Event[Any]:
    options = {"idempotency_key": "k", "on_duplicate": "raise", **options}
    return session.add_event("order.placed", "again", **options)


def payloads(engine: Engine) -> list[Any]:
    log = Outbox().tables.outbox
    with engine.connect() as connection:
        return list(connection.scalars(select(log.c.payload).order_by(log.c.id)))


def orders(engine: Engine) -> list[str | None]:
    with engine.connect() as connection:
        return list(connection.scalars(select(Order.name).order_by(Order.name)))


def keys(engine: Engine) -> list[str]:
    table = Outbox().tables.idempotency_keys
    with engine.connect() as connection:
        return list(connection.scalars(select(table.c.key).order_by(table.c.key)))


class TestTheError:
    def test_it_names_the_key_and_the_earlier_event(
        self, engine: Engine, sessions: sessionmaker[OutboxSession], first: Event[Any]
    ) -> None:
        with sessions() as session:
            again(session)
            with pytest.raises(DuplicateEvent) as caught:
                session.commit()

        error = caught.value
        assert error.idempotency_key == "k"
        assert error.duplicate_of == first.event_id
        assert "'k'" in str(error)
        assert "order.placed" in str(error)
        assert str(first.event_id) in str(error)
        assert "roll back" in str(error)

    def test_it_names_the_tenant(
        self, engine: Engine, sessions: sessionmaker[OutboxSession]
    ) -> None:
        with sessions() as session:
            again(session, tenant="acme")
            again(session, tenant="acme")
            with pytest.raises(DuplicateEvent, match="of tenant 'acme'"):
                session.commit()

    def test_a_key_that_is_free_raises_nothing(
        self, engine: Engine, sessions: sessionmaker[OutboxSession], first: Event[Any]
    ) -> None:
        with sessions.begin() as session:
            event = again(session, idempotency_key="another")
            again(session, tenant="another")

        assert event.duplicate_of is None
        assert payloads(engine) == ["first", "again", "again"]

    def test_skipping_is_the_default_and_can_be_said(
        self, engine: Engine, sessions: sessionmaker[OutboxSession], first: Event[Any]
    ) -> None:
        with sessions.begin() as session:
            event = again(session, on_duplicate="skip")

        assert event.duplicate_of == first.event_id

    @pytest.mark.parametrize(
        "options",
        [
            {"on_duplicate": "ignore"},
            {"on_duplicate": None},
            {"on_duplicate": True},
            {"idempotency_key": None},
        ],
        ids=str,
    )
    def test_what_would_never_raise_is_refused_by_add_event(
        self, engine: Engine, sessions: sessionmaker[OutboxSession], options: dict[str, Any]
    ) -> None:
        with sessions() as session:
            with pytest.raises(InvalidEvent) as caught:
                again(session, **options)

            assert caught.value.field == "on_duplicate"
            session.commit()
        assert payloads(engine) == []


class TestNothingIsKept:
    def test_of_a_flush_with_data_and_other_events(
        self, engine: Engine, sessions: sessionmaker[OutboxSession], first: Event[Any]
    ) -> None:
        with sessions() as session:
            session.add(Order(name="an order"))
            session.add_event("before", 1, idempotency_key="fresh")
            again(session)
            session.add_event("after", 2)
            with pytest.raises(DuplicateEvent):
                session.flush()
            with pytest.raises(PendingRollbackError):
                session.execute(text("SELECT 1"))
            session.rollback()
            session.commit()

        assert payloads(engine) == ["first"]
        assert orders(engine) == []
        assert keys(engine) == ["k"]

    def test_of_a_commit_with_nothing_to_flush(
        self,
        engine: Engine,
        sessions: sessionmaker[OutboxSession],
        outbox: CountingOutbox,
        first: Event[Any],
    ) -> None:
        pokes = outbox.pokes
        with sessions() as session:
            session.add_event("before", 1, idempotency_key="fresh")
            again(session)
            with pytest.raises(DuplicateEvent):
                session.commit()
            session.rollback()
            session.commit()

        assert payloads(engine) == ["first"]
        assert keys(engine) == ["k"]
        assert outbox.pokes == pokes

    def test_who_commits_again_instead_is_told_again(
        self, engine: Engine, sessions: sessionmaker[OutboxSession], first: Event[Any]
    ) -> None:
        with sessions() as session:
            session.add_event("before", 1, idempotency_key="fresh")
            again(session)
            for _ in range(3):
                with pytest.raises(DuplicateEvent):
                    session.commit()

        assert payloads(engine) == ["first"]

    def test_the_duplicates_that_are_skipped_beside_it_are_not_marked(
        self, engine: Engine, sessions: sessionmaker[OutboxSession], first: Event[Any]
    ) -> None:
        """They were not left out: they are pending again, or gone with the rollback."""
        with sessions() as session:
            skipped = session.add_event("order.placed", idempotency_key="k")
            refused = again(session)
            with pytest.raises(DuplicateEvent):
                session.flush()

        assert skipped.duplicate_of is None
        assert refused.duplicate_of is None

    def test_a_plain_session_with_hooks_raises_too(
        self, engine: Engine, outbox: CountingOutbox, first: Event[Any]
    ) -> None:
        with outbox.install(sessionmaker(engine))() as session:
            session.add(Order(name="an order"))
            outbox.add(session, "order.placed", idempotency_key="k", on_duplicate="raise")
            with pytest.raises(DuplicateEvent):
                session.commit()

        assert orders(engine) == []


class TestInOneFlush:
    def test_the_second_of_two_is_refused_and_names_the_first(
        self, engine: Engine, sessions: sessionmaker[OutboxSession]
    ) -> None:
        with sessions() as session:
            one = again(session)
            again(session)
            with pytest.raises(DuplicateEvent) as caught:
                session.commit()

        assert caught.value.duplicate_of == one.event_id
        assert payloads(engine) == []

    def test_the_one_that_raises_is_asked_not_the_one_that_has_the_key(
        self, engine: Engine, sessions: sessionmaker[OutboxSession]
    ) -> None:
        with sessions.begin() as session:
            one = again(session)
            other = session.add_event("order.placed", idempotency_key="k")

        assert other.duplicate_of == one.event_id
        assert payloads(engine) == ["again"]

    def test_in_two_flushes_of_one_transaction_it_is_the_same(
        self, engine: Engine, sessions: sessionmaker[OutboxSession]
    ) -> None:
        with sessions() as session:
            one = again(session)
            session.flush()
            again(session)
            with pytest.raises(DuplicateEvent) as caught:
                session.flush()

        assert caught.value.duplicate_of == one.event_id


class TestSavepoints:
    @pytest.mark.parametrize("with_data", [False, True], ids=["events only", "with data"])
    def test_refused_in_a_savepoint_the_transaction_around_it_goes_on(
        self,
        engine: Engine,
        sessions: sessionmaker[OutboxSession],
        first: Event[Any],
        with_data: bool,
    ) -> None:
        with sessions.begin() as session:
            session.add_event("outer", "before")
            session.add(Order(name="outer"))
            savepoint = session.begin_nested()
            if with_data:
                session.add(Order(name="inner"))
            session.add_event("inner", "inner", idempotency_key="inner")
            again(session)
            with pytest.raises(DuplicateEvent), savepoint:
                pass  # leaving it commits the savepoint
            session.add_event("outer", "after", idempotency_key="inner")

        assert payloads(engine) == ["first", "before", "after"]
        assert orders(engine) == ["outer"]

    def test_refused_by_a_flush_inside_it_is_the_same(
        self, engine: Engine, sessions: sessionmaker[OutboxSession], first: Event[Any]
    ) -> None:
        with sessions.begin() as session:
            savepoint = session.begin_nested()
            session.add(Order(name="inner"))
            again(session)
            with pytest.raises(DuplicateEvent):
                session.flush()
            savepoint.rollback()
            session.add_event("outer", "after")

        assert payloads(engine) == ["first", "after"]
        assert orders(engine) == []

    def test_the_event_of_the_outer_transaction_is_refused_by_begin_nested(
        self, engine: Engine, sessions: sessionmaker[OutboxSession], first: Event[Any]
    ) -> None:
        with sessions() as session:
            again(session)
            with pytest.raises(DuplicateEvent):
                session.begin_nested()
            session.rollback()
            session.add_event("next", "next")
            session.commit()

        assert payloads(engine) == ["first", "next"]

    def test_a_key_that_a_rolled_back_savepoint_had_is_free(
        self, engine: Engine, sessions: sessionmaker[OutboxSession]
    ) -> None:
        with sessions.begin() as session:
            savepoint = session.begin_nested()
            again(session)
            session.flush()
            savepoint.rollback()
            again(session)

        assert payloads(engine) == ["again"]


class TestEntities:
    def test_the_insert_of_an_entity_goes_with_its_refused_event(
        self, engine: Engine, sessions: sessionmaker[OutboxSession], first: Event[Any]
    ) -> None:
        order = Order(name="an order")
        order.record_event("order.placed", idempotency_key="k", on_duplicate="raise")
        with sessions() as session:
            session.add(order)
            with pytest.raises(DuplicateEvent):
                session.commit()

        assert orders(engine) == []

    def test_added_again_it_is_refused_again_until_the_key_is_free(
        self, engine: Engine, sessions: sessionmaker[OutboxSession], first: Event[Any]
    ) -> None:
        order = Order(name="an order")
        event = order.record_event(
            OrderPlaced, lambda: OrderPlaced(order.id), idempotency_key="p", on_duplicate="raise"
        )
        with sessions() as session:
            session.add_event(OrderPlaced(7), idempotency_key="p")
            session.commit()
            for _ in range(2):
                session.add(order)
                with pytest.raises(DuplicateEvent):
                    session.commit()
                session.rollback()
            session.execute(text("DELETE FROM outbox_idempotency_keys"))
            session.add(order)
            session.commit()

        assert event.duplicate_of is None
        assert payloads(engine)[-1] == {"order_id": event.payload.order_id}
        assert orders(engine) == ["an order"]


@pytest.mark.anyio
class TestAsync:
    @pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
    async def test_commit_flush_and_savepoint_raise_it(
        self, engine: Engine, migrated_url: URL, first: Event[Any], driver: str
    ) -> None:
        url = migrated_url.set(drivername=f"postgresql+{driver}")
        sessions = CountingOutbox().async_sessionmaker(create_async_engine(url, poolclass=NullPool))
        options: Any = {"idempotency_key": "k", "on_duplicate": "raise"}
        async with sessions() as session:
            session.add_event("order.placed", **options)
            with pytest.raises(DuplicateEvent) as caught:
                await session.commit()
            assert caught.value.duplicate_of == first.event_id
            await session.rollback()

            session.add(Order(name="undone"))
            session.add_event("order.placed", **options)
            with pytest.raises(DuplicateEvent):
                await session.flush()
            await session.rollback()

            with pytest.raises(DuplicateEvent):
                async with session.begin_nested():
                    session.add_event("order.placed", **options)
            session.add_event("next", "next")
            await session.commit()

        assert payloads(engine) == ["first", "next"]
        assert orders(engine) == []
