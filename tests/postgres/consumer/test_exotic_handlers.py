"""Handlers that raise, return or take what nobody expects. FAULTS: one event fails, no process."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import anyio
import pytest
from sqlalchemy import Executable, select, text
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from sa_outbox import Event, Outbox
from sa_outbox.observe import HandlerReturned
from tests.support.shop import Order

from .conftest import ONCE, QUICK, Consuming, Database, Producer

pytestmark = [pytest.mark.anyio, pytest.mark.woken_by("poll")]


class Rare(BaseException):
    """Not an Exception."""


ERRORS = [
    Rare("rare"),
    GeneratorExit("odd"),
    asyncio.CancelledError("not ours"),
    StopIteration("odd"),
    StopAsyncIteration("odd"),
    ExceptionGroup("several", [ValueError("one"), TypeError("two")]),
    BaseExceptionGroup("several", [Rare("one"), TypeError("two")]),
    RecursionError("deep"),
    MemoryError("much"),
    TimeoutError("of some service"),
    ConnectionRefusedError("of some service"),
]
EACH_ERROR = pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)


@EACH_ERROR
@pytest.mark.parametrize("with_session", [False, True], ids=["plain", "session"])
async def test_whatever_an_async_handler_raises_is_its_failure(
    error: BaseException,
    with_session: bool,
    outbox: Outbox,
    producer: Producer,
    database: Database,
    consuming: Consuming,
) -> None:
    async def charge(event: Event[Any]) -> None:
        if event.payload["n"] == 1:
            raise error

    async def charge_in_session(event: Event[Any], session: AsyncSession) -> None:
        await charge(event)

    listener = outbox.listener("billing", on="order.*", retry=QUICK)
    listener(charge_in_session if with_session else charge)
    producer.add(1, 2, key="a")

    async with consuming(outbox) as running:
        await running.dead("billing")
        await running.done("billing")

    assert database.dead_letters("billing")[0].attempts == 3


@EACH_ERROR
@pytest.mark.parametrize("with_session", [False, True], ids=["plain", "session"])
async def test_whatever_a_sync_handler_raises_is_its_failure(
    error: BaseException,
    with_session: bool,
    outbox: Outbox,
    producer: Producer,
    database: Database,
    consuming: Consuming,
) -> None:
    def charge(event: Event[Any]) -> None:
        if event.payload["n"] == 1:
            raise error

    def charge_in_session(event: Event[Any], session: Session) -> None:
        charge(event)

    listener = outbox.listener("billing", on="order.*", retry=QUICK)
    listener(charge_in_session if with_session else charge)
    producer.add(1, 2, key="a")

    async with consuming(outbox) as running:
        await running.dead("billing")
        await running.done("billing")

    assert database.dead_letters("billing")[0].attempts == 3


STATEMENTS: dict[str, list[Executable]] = {
    "a parameter of the wrong type": [select(Order).where(Order.id == "abc")],
    "an unknown table": [text("SELECT FROM nowhere")],
    "bad syntax": [text("SELEC")],
    "a constraint": [text("INSERT INTO outbox_meta VALUES (true, 1, 1)")],
    "a division by zero": [text("SELECT 1 / 0")],
    "its own time limit": [text("SET LOCAL statement_timeout = 10"), text("SELECT pg_sleep(9)")],
}


@pytest.mark.parametrize("statements", STATEMENTS.values(), ids=STATEMENTS.keys())
@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
async def test_a_statement_that_the_database_refuses_is_the_handler_s_failure(
    statements: list[Executable],
    is_async: bool,
    outbox: Outbox,
    producer: Producer,
    database: Database,
    consuming: Consuming,
) -> None:
    listener = outbox.listener("billing", on="order.*", retry=QUICK)
    if is_async:

        @listener
        async def charge(event: Event[Any], session: AsyncSession) -> None:
            for statement in statements:
                await session.execute(statement)
    else:

        @listener
        def charge_in_thread(event: Event[Any], session: Session) -> None:
            for statement in statements:
                session.execute(statement)

    producer.add(1)

    async with consuming(outbox) as running:
        await running.dead("billing")

    assert database.dead_letters("billing")[0].attempts == 3


async def test_a_handler_that_cancels_itself_has_failed(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    @outbox.listener("billing", on="order.*", retry=ONCE)
    async def charge(event: Event[Any]) -> None:
        if event.payload["n"] == 1:
            child = asyncio.ensure_future(anyio.sleep_forever())
            child.cancel()
            await child

    producer.add(1, 2)

    async with consuming(outbox) as running:
        await running.dead("billing")
        await running.done("billing")

    assert database.dead_letters("billing")[0].errors[0]["code"] == "CancelledError"


async def test_a_handler_that_cancels_its_own_task_has_failed(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    @outbox.listener("billing", on="order.*", retry=QUICK)
    async def charge(event: Event[Any], session: AsyncSession) -> None:
        if event.payload["n"] == 1:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await anyio.sleep_forever()
        async with asyncio.timeout(5):
            await session.execute(text("SELECT 1"))

    producer.add(1, 2, key="a")

    async with consuming(outbox) as running:
        await running.dead("billing")
        await running.done("billing")

    assert database.dead_letters("billing")[0].attempts == 3


async def test_a_handler_s_own_cancel_scope_works(
    outbox: Outbox, producer: Producer, consuming: Consuming
) -> None:
    @outbox.listener("billing", on="order.*")
    async def charge(event: Event[Any], session: AsyncSession) -> None:
        with anyio.move_on_after(0.01):
            await anyio.sleep_forever()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await anyio.sleep_forever()

    producer.add(1)

    async with consuming(outbox) as running:
        await running.done("billing")


async def test_a_value_that_is_returned_is_told_of_once(
    outbox: Outbox, producer: Producer, consuming: Consuming
) -> None:
    @outbox.listener("billing", on="order.*")
    async def charge(event: Event[Any]) -> int:
        return 1

    producer.add(1, 2, 3)

    async with consuming(outbox) as running:
        await running.done("billing", 3)

    assert running.recorder.of(HandlerReturned) == [HandlerReturned("billing", "int")]


async def test_a_coroutine_that_nobody_awaits_fails_the_attempt(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    async def forgotten() -> None: ...

    @outbox.listener("billing", on="order.*", retry=ONCE)
    def charge(event: Event[Any]) -> Coroutine[Any, Any, None]:
        return forgotten()

    producer.add(1)

    async with consuming(outbox) as running:
        await running.dead("billing")

    assert "awaitable" in database.dead_letters("billing")[0].errors[0]["message"]


async def test_what_an_un_awaited_coroutine_left_in_the_session_is_not_committed(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    async def forgotten() -> None: ...

    @outbox.listener("billing", on="order.*", retry=ONCE)
    def charge(event: Event[Any], session: Session) -> Coroutine[Any, Any, None]:
        session.execute(text("INSERT INTO effects VALUES ('billing', 1)"))
        return forgotten()

    producer.add(1)

    async with consuming(outbox) as running:
        await running.dead("billing")

    assert database.effects("billing") == []
