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
from tests.postgres.conftest import Setup, setup_of
from tests.support.shop import Order

SWALLOWING = {
    "a rule": ["CREATE RULE forget AS ON INSERT TO outbox DO INSTEAD NOTHING"],
    "a trigger": [
        (
            "CREATE FUNCTION swallow() RETURNS trigger LANGUAGE plpgsql AS"
            " $$BEGIN IF NEW.event_type = 'keep' THEN RETURN NEW; END IF; RETURN NULL; END$$"
        ),
        "CREATE TRIGGER swallow BEFORE INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION swallow()",
    ],
}
GONE = (
    "DROP RULE IF EXISTS forget ON outbox",
    "DROP TRIGGER IF EXISTS swallow ON outbox",
    "DROP FUNCTION IF EXISTS swallow",
)


def run(engine: Engine, *statements: str) -> None:
    with engine.begin() as connection:
        for each in statements:
            connection.execute(text(each))


@pytest.fixture(params=SWALLOWING)
def swallowing(request: pytest.FixtureRequest, engine: Engine) -> Iterator[Engine]:
    run(engine, *SWALLOWING[request.param])
    yield engine
    run(engine, *GONE)


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
    run(engine, *SWALLOWING["a trigger"])
    try:
        with setup.maker() as session:
            setup.outbox.add(session, "keep")
            setup.outbox.add(session, "lose")
            with pytest.raises(NotWritten) as refused:
                session.commit()
            run_on = refused.value
            with pytest.raises(DBAPIError):
                session.commit()
            session.rollback()
    finally:
        run(engine, *GONE)

    assert (run_on.expected, run_on.written) == (2, 1)
    assert setup.rows() == []


def test_a_savepoint_whose_events_are_swallowed_is_rolled_back_alone(
    engine: Engine, setup: Setup
) -> None:
    run(engine, *SWALLOWING["a trigger"])
    try:
        with setup.maker.begin() as session:
            setup.outbox.add(session, "keep")
            with pytest.raises(NotWritten), session.begin_nested():
                setup.outbox.add(session, "lose")
    finally:
        run(engine, *GONE)

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


def test_a_trigger_that_keeps_all_events_is_no_fault(engine: Engine, setup: Setup) -> None:
    run(engine, *SWALLOWING["a trigger"])
    try:
        with setup.maker.begin() as session:
            for _ in range(3):
                setup.outbox.add(session, "keep")
    finally:
        run(engine, *GONE)

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
