"""What adding events sends to the server, and writes to the WAL: counted, not timed."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from sqlalchemy import URL, Engine, NullPool, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from sa_outbox import Outbox
from sa_outbox.sql.log.events import insert_events
from tests.postgres.conftest import Setup
from tests.postgres.test_statements import document
from tests.support.sent import noted
from tests.support.shop import Order

MANY = 1000
INDEXES = 1
"""Of the log, with an entry for every event: the primary key."""


@pytest.fixture
def sent(engine: Engine) -> Iterator[list[str]]:
    with noted(engine) as seen:
        yield seen


@pytest.mark.parametrize("count", [1, 2, MANY])
def test_any_number_of_events_is_one_statement_more(
    count: int, setup: Setup, sent: list[str]
) -> None:
    with setup.maker.begin() as session:
        session.add(Order(name="x"))
        for number in range(count):
            setup.outbox.add(session, "e", number)

    assert sent == ["INSERT INTO orders", "INSERT INTO outbox", "COMMIT"]
    assert len(setup.rows()) == count


def test_a_transaction_without_events_sends_what_a_plain_session_sends(
    setup: Setup, sent: list[str]
) -> None:
    with setup.maker.begin() as session:
        session.add(Order(name="x"))
        session.flush()
        session.add(Order(name="y"))

    assert sent == ["INSERT INTO orders", "INSERT INTO orders", "COMMIT"]


def test_each_flush_with_events_is_one_statement_and_one_without_is_none(
    setup: Setup, sent: list[str]
) -> None:
    with setup.maker.begin() as session:
        for count in (2, 0, 3):
            session.add(Order(name=f"x{count}"))
            for _ in range(count):
                setup.outbox.add(session, "e")
            setup.flush(session)

    data, events = "INSERT INTO orders", "INSERT INTO outbox"
    assert sent == [data, events, data, data, events, "COMMIT"]


def test_idempotency_keys_are_one_statement_more_however_many(
    setup: Setup, sent: list[str]
) -> None:
    with setup.maker.begin() as session:
        for number in range(50):
            setup.outbox.add(session, "e", idempotency_key=str(number))

    assert sent == ["INSERT INTO outbox_idempotency_keys", "INSERT INTO outbox", "COMMIT"]


@pytest.fixture
def asyncpg_engine(migrated_url: URL) -> AsyncEngine:
    return create_async_engine(
        migrated_url.set(drivername="postgresql+asyncpg"), poolclass=NullPool
    )


@pytest.mark.anyio
async def test_an_async_session_sends_the_same(engine: Engine, asyncpg_engine: AsyncEngine) -> None:
    sessions = Outbox(notify="off").async_sessionmaker(asyncpg_engine)

    with noted(asyncpg_engine.sync_engine) as sent:
        async with sessions.begin() as session:
            session.add(Order(name="x"))
            for number in range(MANY):
                session.add_event("e", number)

    assert sent == ["INSERT INTO orders", "INSERT INTO outbox", "COMMIT"]


def test_an_event_is_one_wal_record_and_one_for_each_index(engine: Engine) -> None:
    """Beside them there are few: a sequence logs every 32nd value, and pages are split."""
    statement = insert_events(Outbox().tables).compile(dialect=engine.dialect)
    with engine.begin() as connection:
        explained = connection.exec_driver_sql(
            f"EXPLAIN (ANALYZE, WAL, COSTS OFF, TIMING OFF, SUMMARY OFF) {statement}",
            {"document": document(MANY), "now": None},
        )
        plan = "\n".join(row[0] for row in explained)
        assert connection.execute(text("SELECT count(*) FROM outbox")).scalar_one() == MANY
    # The first line is that of the whole statement. Full pages, after a checkpoint, are not ours.
    found = re.search(r"WAL: records=(\d+)(?: fpi=(\d+))? bytes=(\d+)", plan)
    assert found is not None, plan
    records, full_pages, size = (int(each or 0) for each in found.groups())

    least = MANY * (1 + INDEXES)
    assert least <= records <= least + MANY // 32 + MANY // 10
    assert size - full_pages * 8192 < 400 * MANY
