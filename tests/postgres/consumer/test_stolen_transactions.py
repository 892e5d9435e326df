"""A handler that ends the transaction it was lent: its attempt fails, and has no effect."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
from sqlalchemy import Connection, RootTransaction, text
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from sa_outbox import Event, Outbox
from sa_outbox.errors import HandlerMustNotCommit

from .conftest import ONCE, Consuming, Database, Producer

pytestmark = [pytest.mark.anyio, pytest.mark.woken_by("poll")]

EFFECT = text("INSERT INTO effects VALUES ('billing', :n)")


async def commit(session: AsyncSession) -> None:
    await session.commit()


async def roll_back(session: AsyncSession) -> None:
    await session.rollback()


async def close(session: AsyncSession) -> None:
    await session.close()


async def reset(session: AsyncSession) -> None:
    await session.reset()


async def invalidate(session: AsyncSession) -> None:
    await session.invalidate()


async def commit_and_swallow(session: AsyncSession) -> None:
    with suppress(HandlerMustNotCommit):
        await session.commit()


async def commit_as_a_block(session: AsyncSession) -> None:
    with suppress(HandlerMustNotCommit):
        async with session:
            pass


async def commit_inside(session: AsyncSession) -> None:
    await session.run_sync(lambda inner: inner.commit())


async def leave_a_savepoint_open(session: AsyncSession) -> None:
    _ = await session.begin_nested()


async def commit_the_transaction(session: AsyncSession) -> None:
    transaction = session.get_transaction()
    assert transaction is not None
    await transaction.commit()


async def commit_the_connection(session: AsyncSession) -> None:
    connection = await session.connection()
    await connection.commit()


WAYS: list[Callable[[AsyncSession], Awaitable[None]]] = [
    commit,
    roll_back,
    close,
    reset,
    invalidate,
    commit_and_swallow,
    commit_as_a_block,
    commit_inside,
    leave_a_savepoint_open,
    commit_the_transaction,
    commit_the_connection,
]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_an_async_handler_that_ends_its_transaction_fails_without_effect(
    way: Callable[[AsyncSession], Awaitable[None]],
    outbox: Outbox,
    producer: Producer,
    database: Database,
    consuming: Consuming,
) -> None:
    @outbox.listener("billing", on="order.*", retry=ONCE)
    async def charge(event: Event[Any], session: AsyncSession) -> None:
        await session.execute(EFFECT, {"n": event.payload["n"]})
        if event.payload["n"] == 1:
            await way(session)

    producer.add(1, 2)

    async with consuming(outbox) as running:
        await running.dead("billing")
        await running.done("billing")

    [dead] = database.dead_letters("billing")
    assert dead.errors[0]["code"] == "handler-must-not-commit"
    assert database.effects("billing") == [2]


SYNC_WAYS: dict[str, Callable[[Session], object]] = {
    "commit": lambda session: session.commit(),
    "rollback": lambda session: session.rollback(),
    "close": lambda session: session.close(),
    "begin_nested": lambda session: session.begin_nested(),
    "connection.commit": lambda session: session.connection().commit(),
    "connection.begin.commit": lambda session: begun(session.connection()).commit(),
}


def begun(connection: Connection) -> RootTransaction:
    transaction = connection.get_transaction()
    assert transaction is not None
    return transaction


@pytest.mark.parametrize("way", SYNC_WAYS.values(), ids=SYNC_WAYS)
async def test_a_sync_handler_that_ends_its_transaction_fails_without_effect(
    way: Callable[[Session], object],
    outbox: Outbox,
    producer: Producer,
    database: Database,
    consuming: Consuming,
) -> None:
    @outbox.listener("billing", on="order.*", retry=ONCE)
    def charge(event: Event[Any], session: Session) -> None:
        session.execute(EFFECT, {"n": event.payload["n"]})
        if event.payload["n"] == 1:
            way(session)

    producer.add(1, 2)

    async with consuming(outbox) as running:
        await running.dead("billing")
        await running.done("billing")

    [dead] = database.dead_letters("billing")
    assert dead.errors[0]["code"] == "handler-must-not-commit"
    assert database.effects("billing") == [2]


async def test_a_savepoint_of_the_handler_s_own_is_fine(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    @outbox.listener("billing", on="order.*")
    async def charge(event: Event[Any], session: AsyncSession) -> None:
        async with session.begin_nested():
            await session.execute(EFFECT, {"n": 1})
        with suppress(ValueError):
            async with session.begin_nested():
                await session.execute(EFFECT, {"n": 2})
                raise ValueError("only this part")

    producer.add(1)

    async with consuming(outbox) as running:
        await running.done("billing")

    assert database.effects("billing") == [1]
