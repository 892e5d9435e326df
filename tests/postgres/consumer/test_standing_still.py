"""A process that sleeps in the middle of a transaction: the server ends it, and others go on.

As after a SIGSTOP: from the place where it sleeps nothing is sent, on that connection, any more.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import anyio
import pytest
from sqlalchemy import Engine, make_url, text
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session
from sqlalchemy.util import await_only

from sa_outbox import Event, Outbox
from sa_outbox.consumer.connection import engines
from sa_outbox.consumer.settle import buffer
from sa_outbox.consumer.settle.execution import run_each
from sa_outbox.consumer.transaction import lent_session
from tests.support import comes_true

from .conftest import QUICK, Consuming, Database, Producer

pytestmark = pytest.mark.anyio

SHORT: Any = {"lease_duration": timedelta(seconds=2)}
INSERT = text("INSERT INTO effects VALUES ('billing', :n)")
ORDERS = pytest.mark.parametrize("order", ["key", "none"])


class Sleeper:
    """Sleeps once, before the last statement of a transaction that settles; says that it does."""

    def __init__(self) -> None:
        self.sleeps = anyio.Event()
        self.wakes = anyio.Event()

    async def stand_still(self) -> None:
        if not self.sleeps.is_set():
            self.sleeps.set()
            await self.wakes.wait()


async def ended_by_the_server(database: Database, sleeper: Sleeper) -> None:
    await sleeper.sleeps.wait()
    assert database.idle_in_transaction(), "it does not sleep in a transaction"
    await comes_true(lambda: not database.idle_in_transaction(), within=20)
    sleeper.wakes.set()


@ORDERS
async def test_a_transaction_of_several_statements_is_ended_after_a_lease(
    order: Any,
    engine: Engine,
    database: Database,
    consuming: Consuming,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that settles, on the consumer's own connection; then all of it is done again."""
    outbox, sleeper = Outbox(notify="off"), Sleeper()
    got: list[int] = []

    async def slow(context: Any, lease: Any, connection: Any, writes: list[Any]) -> int:
        if len(writes) > 1:
            await run_each(context, lease, connection, writes[:-1])
            await sleeper.stand_still()
            writes = writes[-1:]
        return await run_each(context, lease, connection, writes)

    monkeypatch.setattr(buffer, "run_each", slow)

    @outbox.listener("billing", on="order.*", order=order, retry=QUICK)
    async def charge(event: Event[Any]) -> None:
        got.append(event.payload["n"])
        if len(got) == 1:
            raise ValueError("parked, so that there is more than one statement")

    Producer(outbox, engine).add(1)
    async with consuming(outbox, **SHORT) as running:
        await ended_by_the_server(database, sleeper)
        await running.done("billing")

    assert database.deliveries("billing") == []


@ORDERS
@pytest.mark.parametrize("audit", ["off", "all"])
async def test_so_is_that_of_a_handler_s_session_once_it_settles(
    order: Any,
    audit: Any,
    engine: Engine,
    database: Database,
    consuming: Consuming,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On any engine: on this one nothing is set. With an audit there are several statements."""
    outbox, sleeper = Outbox(notify="off", audit=audit), Sleeper()
    settle = lent_session._settle

    def slow(session: Any, writes: list[Any], lease: Any) -> None:
        commit = session.commit
        before_last = len(writes) > 1

        def late_commit() -> None:
            await_only(sleeper.stand_still())
            commit()

        if before_last:
            for write in writes[:-1]:
                session.execute(write.query.clause, write.values)
            await_only(sleeper.stand_still())
            writes = writes[-1:]
        else:
            session.commit = late_commit
        settle(session, writes, lease)

    monkeypatch.setattr(lent_session, "_settle", slow)

    @outbox.listener("billing", on="order.*", order=order)
    async def charge(event: Event[Any], session: AsyncSession) -> None:
        await session.execute(INSERT, {"n": event.payload["n"]})

    Producer(outbox, engine).add(1)
    async with consuming(outbox, **SHORT) as running:
        await ended_by_the_server(database, sleeper)
        await running.done("billing")
        await running.consumer.drain()

    assert database.effects("billing") == [1]


@pytest.mark.parametrize(
    ("timeout", "expected"),
    [(timedelta(minutes=1), "90000"), (timedelta(seconds=5), "35000"), (None, "86430000")],
)
async def test_a_handler_may_send_nothing_for_as_long_as_its_timeout_and_half_a_minute(
    timeout: timedelta | None, expected: str, engine: Engine
) -> None:
    """On engines that the consumer makes. Handlers without a session do not count."""
    outbox = Outbox(notify="off")

    @outbox.listener("async", on="*", timeout=timeout)
    async def one(event: Event[Any], session: AsyncSession) -> None: ...

    @outbox.listener("sync", on="*", timeout=timeout)
    def other(event: Event[Any], session: Session) -> None: ...

    @outbox.listener("plain", on="*", timeout=timedelta(hours=5))
    async def plain(event: Event[Any]) -> None: ...

    url = make_url(engine.url.render_as_string(hide_password=False)).set(drivername="postgresql")
    made = engines.engines(
        url.update_query_dict({"options": "-c work_mem=5MB"}), None, [*outbox.listeners]
    )
    asked = text(
        "SELECT setting FROM pg_settings WHERE name = 'idle_in_transaction_session_timeout'"
    )
    try:
        async with made.asynchronous.connect() as connection:
            assert await connection.scalar(asked) == expected
        assert made.synchronous is not None
        with made.synchronous.connect() as sync:
            assert sync.scalar(asked) == expected
            assert sync.scalar(text("SHOW work_mem")) == "5MB"
    finally:
        await made.dispose()
