"""A rule or trigger on the log that swallows events fails the transaction, with every driver."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import URL, Connection, Engine, NullPool, create_engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine

from sa_outbox import Outbox
from sa_outbox.errors import NotWritten
from sa_outbox.operations.crons import run_cron
from sa_outbox.operations.operator import Operator
from tests.postgres.conftest import Setup, setup_of
from tests.support.shop import Order
from tests.support.swallowing import SWALLOWING, swallowed_by


@pytest.fixture(params=SWALLOWING)
def swallowing(request: pytest.FixtureRequest, engine: Engine) -> Iterator[Engine]:
    with swallowed_by(request.param, engine):
        yield engine


@pytest.fixture(params=["psycopg", "psycopg2"])
def on_driver(request: pytest.FixtureRequest, migrated_url: URL, swallowing: Engine) -> Setup:
    url = migrated_url.set(drivername=f"postgresql+{request.param}")
    return setup_of("factory", create_engine(url, poolclass=NullPool))


def test_a_commit_whose_events_are_swallowed_raises_and_keeps_nothing(on_driver: Setup) -> None:
    with on_driver.maker() as session:
        session.add(Order(name="x"))
        on_driver.outbox.add(session, "a")
        on_driver.outbox.add(session, "b")
        with pytest.raises(NotWritten) as refused:
            session.commit()

    assert (refused.value.expected, refused.value.written) == (2, 0)
    assert on_driver.rows() == []
    with on_driver.engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM orders")).scalar_one() == 0


def test_a_transaction_of_which_a_part_was_swallowed_can_not_be_committed(
    engine: Engine, setup: Setup
) -> None:
    with swallowed_by("a trigger", engine), setup.maker() as session:
        setup.outbox.add(session, "keep")
        setup.outbox.add(session, "lose")
        with pytest.raises(NotWritten) as refused:
            session.commit()
        with pytest.raises(DBAPIError):
            session.commit()
        session.rollback()

    assert (refused.value.expected, refused.value.written) == (2, 1)
    assert setup.rows() == []


def test_a_savepoint_whose_events_are_swallowed_is_rolled_back_alone(
    engine: Engine, setup: Setup
) -> None:
    with swallowed_by("a trigger", engine), setup.maker.begin() as session:
        setup.outbox.add(session, "keep")
        with pytest.raises(NotWritten), session.begin_nested():
            setup.outbox.add(session, "lose")

    assert setup.types() == ["keep"]


@pytest.mark.anyio
async def test_the_same_with_asyncpg(migrated_url: URL, swallowing: Engine) -> None:
    engine = create_async_engine(
        migrated_url.set(drivername="postgresql+asyncpg"), poolclass=NullPool
    )
    maker = Outbox(notify="off").async_sessionmaker(engine)

    async with maker() as session:
        session.add_event("a")
        session.add_event("b")
        with pytest.raises(NotWritten, match="0 of 2 events"):
            await session.commit()
    await engine.dispose()

    with swallowing.connect() as connection:
        assert _count(connection) == 0


def test_a_cron_run_by_hand_whose_event_is_swallowed_raises_and_records_nothing(
    engine: Engine, swallowing: Engine
) -> None:
    outbox = Outbox(notify="off", audit="all")
    outbox.cron("0 3 * * *", "sweep", time_zone="UTC")
    with engine.begin() as connection:
        connection.execute(
            text("INSERT INTO outbox_crons (name, last_tick) VALUES ('sweep', now())")
        )

    with engine.connect() as connection:
        with pytest.raises(NotWritten, match="0 of 1 events"):
            run_cron(connection, outbox.tables, outbox.crons, "sweep", Operator(who="grace"))
        with pytest.raises(DBAPIError):
            connection.execute(text("SELECT 1"))  # nobody commits what was before

    with engine.connect() as connection:
        assert _count(connection) == 0
        assert connection.execute(text("SELECT count(*) FROM outbox_audit")).scalar_one() == 0


def test_a_trigger_that_keeps_all_events_is_no_fault(engine: Engine, setup: Setup) -> None:
    with swallowed_by("a trigger", engine), setup.maker.begin() as session:
        for _ in range(3):
            setup.outbox.add(session, "keep")

    assert setup.types() == ["keep"] * 3


def test_events_left_out_for_their_idempotency_key_are_not_counted(setup: Setup) -> None:
    for _ in range(2):
        with setup.maker.begin() as session:
            setup.outbox.add(session, "a", idempotency_key="k")
            setup.outbox.add(session, "a", idempotency_key="k")
            setup.outbox.add(session, "b")

    assert setup.types() == ["a", "b", "b"]


def _count(connection: Connection) -> Any:
    return connection.execute(text("SELECT count(*) FROM outbox")).scalar_one()
