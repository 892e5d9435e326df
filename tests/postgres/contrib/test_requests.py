"""One suite for every framework: what a request adds is there before its response, or never."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, select, text
from sqlalchemy.ext.asyncio import create_async_engine

from sa_outbox import Outbox
from tests.support.web import (
    BROKEN,
    NOT_COMMITTED,
    NOT_FOUND,
    SHOPS,
    Program,
    Shop,
    alchemy_alone,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
def doubtful(engine: Engine) -> Iterator[None]:
    """Rows that are refused when they are committed."""
    with engine.begin() as connection:
        connection.execute(
            text("CREATE TABLE doubtful (id int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
        )
    yield
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE doubtful"))


@pytest.fixture
async def program(engine: Engine, doubtful: None) -> AsyncIterator[Program]:
    async_engine = create_async_engine(engine.url.set(drivername="postgresql+asyncpg"))
    yield Program(Outbox(notify="off"), engine, async_engine)
    pools: Any = (engine.pool, async_engine.pool)
    assert [each.checkedout() for each in pools] == [0, 0]
    await async_engine.dispose()


def committed(program: Program) -> list[tuple[int, str | None]]:
    """The number and the request id of each event."""
    log = program.outbox.tables.outbox
    columns = (log.c.payload["n"].as_integer(), log.c.headers["request_id"].astext)
    with program.engine.connect() as connection:
        return [(n, id_) for n, id_ in connection.execute(select(*columns).order_by(log.c.id))]


@pytest.fixture(params=SHOPS)
async def shop(request: pytest.FixtureRequest, program: Program) -> AsyncIterator[Shop]:
    shop = Shop(SHOPS[request.param](program), lambda: len(committed(program)))
    async with shop.running():
        yield shop


async def test_the_event_is_committed_before_the_response_begins(
    shop: Shop, program: Program
) -> None:
    assert await shop.post(1) // 100 == 2
    assert await shop.post(2) // 100 == 2

    assert shop.seen == [1, 2]
    assert committed(program) == [(1, None), (2, None)]


@pytest.mark.parametrize(
    ("number", "status"), [(NOT_FOUND, 404), (BROKEN, 500)], ids=["not found", "broken"]
)
async def test_a_request_that_raises_leaves_no_event(
    shop: Shop, program: Program, number: int, status: int
) -> None:
    assert await shop.post(number) == status
    assert await shop.post(1) // 100 == 2

    assert committed(program) == [(1, None)]


async def test_nobody_is_told_of_success_when_the_commit_fails(
    shop: Shop, program: Program
) -> None:
    assert await shop.post(NOT_COMMITTED) // 100 == 5

    assert committed(program) == []


async def test_docs_are_right_that_advanced_alchemy_alone_hides_a_commit_that_fails(
    program: Program,
) -> None:
    shop = Shop(alchemy_alone(program), lambda: len(committed(program)))

    async with shop.running():
        assert await shop.post(NOT_COMMITTED) == 201

    assert committed(program) == []


async def test_events_have_the_id_of_their_request_and_no_other(
    shop: Shop, program: Program
) -> None:
    await shop.post(1, X_Request_ID="r-1")
    await shop.post(2)
    await shop.post(3, X_Request_ID="x" * 10_000)

    assert committed(program) == [(1, "r-1"), (2, None), (3, None)]
