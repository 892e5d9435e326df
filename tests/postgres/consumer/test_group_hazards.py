"""What is outside a group's transaction and could take its events along: hooks on sessions, threads
and statements that outlive their handler."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import anyio
import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy import event as hooks
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import Session

from sa_outbox import Event, Outbox
from sa_outbox.consumer import Consumer
from sa_outbox.consumer.handler.session import HandlerSession
from sa_outbox.consumer.transaction import group
from sa_outbox.observe import AttemptFailed
from tests.support import comes_true

from .conftest import ONCE, Consuming, Database, Producer

pytestmark = [pytest.mark.anyio, pytest.mark.woken_by("notify")]

EFFECT = text("INSERT INTO effects VALUES ('billing', :n)")
UNIQUE = text("INSERT INTO checked_late VALUES (:n)")
XID = text("SELECT CAST(pg_current_xact_id() AS text)")
COUNT, POISON = 6, 3
ALL_BUT_POISON = [n for n in range(COUNT) if n != POISON]


@pytest.fixture(autouse=True)
def patient_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group, "MAX_SECONDS", 60.0)


@contextmanager
def hooked(name: str, hook: Callable[..., None]) -> Iterator[None]:
    hooks.listen(HandlerSession, name, hook, propagate=True)
    try:
        yield
    finally:
        hooks.remove(HandlerSession, name, hook)


async def test_a_hook_that_refuses_the_commit_of_one_event_fails_this_event(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    """With any error: the listener goes on, and nobody else is counted."""

    @outbox.listener("billing", on="order.*", retry=ONCE)
    async def charge(event: Event[Any], session: AsyncSession) -> None:
        await session.execute(EFFECT, {"n": event.payload["n"]})
        session.info["refused"] = event.payload["n"] == POISON

    def refuse(session: Session) -> None:
        if session.info.get("refused"):
            raise ValueError("not this one")

    producer.add(*range(COUNT))

    with hooked("before_commit", refuse):
        async with consuming(outbox) as running:
            await running.settled("billing", COUNT)

    assert database.effects("billing") == ALL_BUT_POISON
    [dead] = database.dead_letters("billing")
    assert dead.position == POISON + 1
    assert "not this one" in dead.errors[0]["message"]


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_hook_that_runs_sql_before_a_commit_runs_for_each_event(
    *, is_async: bool, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    """Also for events that leave nothing to be flushed, whose sessions send nothing otherwise."""
    if is_async:

        @outbox.listener("billing", on="order.*", retry=ONCE)
        async def charge(event: Event[Any], session: AsyncSession) -> None:
            session.info["n"] = event.payload["n"]
    else:

        @outbox.listener("billing", on="order.*", retry=ONCE)
        def charge_in_a_thread(event: Event[Any], session: Session) -> None:
            session.info["n"] = event.payload["n"]

    def write(session: Session) -> None:
        if "n" in session.info:
            session.execute(EFFECT, {"n": session.info["n"]})

    producer.add(*range(COUNT))

    with hooked("before_commit", write):
        async with consuming(outbox) as running:
            await running.done("billing", COUNT)

    assert database.effects("billing") == list(range(COUNT))


async def test_a_sync_handler_that_returns_as_its_time_is_up_has_its_effect_once(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    """Its savepoint is released in its thread, when nobody has told it yet."""
    loop, attempts = asyncio.get_running_loop(), 0

    @outbox.listener("billing", on="order.*", timeout=timedelta(seconds=0.2))
    def charge(event: Event[Any], session: Session) -> None:
        nonlocal attempts
        session.execute(EFFECT, {"n": event.payload["n"]})
        if event.payload["n"] == POISON:
            attempts += 1
            if attempts == 1:
                # Until it has returned, the event loop can't know that its time is up.
                loop.call_soon_threadsafe(returned.wait, 5)
                threading.Event().wait(0.3)
                threading.Timer(0.2, returned.set).start()

    returned = threading.Event()
    producer.add(*range(COUNT))
    async with consuming(outbox) as running:
        await running.done("billing", COUNT)

    assert attempts == 2
    assert database.effects("billing") == list(range(COUNT))


class TestAHookThatRunsSqlWhenATransactionBegins:
    """Row-level security, as many programs do it: on an async session it needs the greenlet, and
    on a sync one it would block the event loop."""

    async def test_runs_for_each_event_of_a_group(
        self, outbox: Outbox, producer: Producer, consuming: Consuming
    ) -> None:
        transactions: list[Any] = []

        @outbox.listener("billing", on="order.*", retry=ONCE)
        async def charge(event: Event[Any], session: AsyncSession) -> None:
            transactions.append(await session.scalar(XID))

        begun: list[object] = []
        producer.add(*range(COUNT))

        def restrict(session: Session, _transaction: object, connection: Any) -> None:
            connection.execute(text("SELECT set_config('app.user', 'me', true)"))
            begun.append(session)

        with hooked("after_begin", restrict):
            async with consuming(outbox) as running:
                await running.done("billing", COUNT)

        assert len(set(transactions)) == 1
        assert len(transactions) == len(begun) == COUNT

    async def test_runs_in_a_thread_if_the_session_is_sync(
        self, outbox: Outbox, producer: Producer, consuming: Consuming
    ) -> None:
        @outbox.listener("billing", on="order.*", retry=ONCE)
        def charge(event: Event[Any], session: Session) -> None:
            session.execute(EFFECT, {"n": event.payload["n"]})

        threads: list[threading.Thread] = []
        producer.add(*range(COUNT))

        with hooked("after_begin", lambda *_: threads.append(threading.current_thread())):
            async with consuming(outbox) as running:
                await running.done("billing", COUNT)

        assert len(threads) == COUNT
        assert threading.main_thread() not in threads


class TestATimeLimit:
    """The transaction goes on at the server, with the locks of all: attempted again, they would
    wait for themselves, until their own time is up."""

    async def test_ends_the_statement_that_runs(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        @outbox.listener("billing", on="order.*", retry=ONCE, timeout=timedelta(seconds=2))
        async def charge(event: Event[Any], session: AsyncSession) -> None:
            await session.execute(UNIQUE, {"n": event.payload["n"]})
            if event.payload["n"] == POISON:
                await session.execute(text("SELECT pg_sleep(60)"))

        await self._only_poison_is_dead(outbox, producer, database, consuming)

    @pytest.mark.parametrize("in_a_statement", [True, False])
    async def test_of_a_thread_ends_its_transaction(
        self,
        in_a_statement: bool,
        outbox: Outbox,
        producer: Producer,
        database: Database,
        consuming: Consuming,
    ) -> None:
        ended = threading.Event()

        @outbox.listener("billing", on="order.*", retry=ONCE, timeout=timedelta(seconds=2))
        def charge(event: Event[Any], session: Session) -> None:
            session.execute(UNIQUE, {"n": event.payload["n"]})
            if event.payload["n"] == POISON and in_a_statement:
                session.execute(text("SELECT pg_sleep(20)"))
            elif event.payload["n"] == POISON:
                ended.wait(20)

        try:
            await self._only_poison_is_dead(outbox, producer, database, consuming)
        finally:
            ended.set()

    async def test_leaves_no_lock_for_those_that_come_after(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        """Without a group too: they want the row that the event had which was cut off."""
        database.rows("INSERT INTO effects VALUES ('row', 1)")
        update = text("UPDATE effects SET n = n WHERE listener = 'row'")
        options: dict[str, Any] = {"timeout": timedelta(seconds=2), "group_commit": False}

        @outbox.listener("billing", on="order.*", retry=ONCE, **options)
        async def charge(event: Event[Any], session: AsyncSession) -> None:
            await session.execute(update)
            await session.execute(UNIQUE, {"n": event.payload["n"]})
            if event.payload["n"] == POISON:
                await session.execute(text("SELECT pg_sleep(60)"))

        await self._only_poison_is_dead(outbox, producer, database, consuming)

    async def _only_poison_is_dead(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        producer.add(*range(COUNT))

        async with consuming(outbox) as running:
            await running.done("billing", COUNT - 1)
            await running.dead("billing")
            failed = {each.position for each in running.recorder.of(AttemptFailed)}

        assert failed == {POISON + 1}
        found = database.rows("SELECT n FROM checked_late ORDER BY n")
        assert [row.n for row in found] == ALL_BUT_POISON


async def test_a_thread_that_is_left_behind_keeps_the_connection_of_its_group(
    outbox: Outbox,
    producer: Producer,
    database: Database,
    engine: Engine,
    async_engine: AsyncEngine,
) -> None:
    """Given back to the pool while the thread uses it, it would have two users."""
    inside, ended = threading.Event(), threading.Event()
    sync_engine = create_engine(engine.url, pool_size=1, max_overflow=0)

    @outbox.listener("billing", on="order.*", retry=ONCE)
    def charge(event: Event[Any], session: Session) -> None:
        session.execute(EFFECT, {"n": event.payload["n"]})
        if event.payload["n"] == POISON:
            inside.set()
            ended.wait(20)
            session.execute(EFFECT, {"n": event.payload["n"]})

    async def run(*, task_status: anyio.abc.TaskStatus[None]) -> None:
        await Consumer(outbox, async_engine, sync_engine=sync_engine).run(task_status=task_status)

    producer.add(*range(COUNT))
    try:
        async with anyio.create_task_group() as tasks:
            await tasks.start(run)
            await anyio.to_thread.run_sync(inside.wait)
            tasks.cancel_scope.cancel()
        pool: Any = sync_engine.pool
        assert pool.checkedout() == 1
    finally:
        ended.set()
    await comes_true(lambda: pool.checkedout() == 0)
    assert database.effects("billing") == []
    sync_engine.dispose()


@pytest.mark.parametrize("group_commit", [True, False])
async def test_a_connection_whose_commit_was_refused_is_not_left_open(
    group_commit: bool,
    outbox: Outbox,
    producer: Producer,
    database: Database,
    consuming: Consuming,
    engine: Engine,
) -> None:
    """psycopg is still in the transaction that SQLAlchemy takes for ended."""
    sync_engine = create_engine(engine.url)

    @outbox.listener("billing", on="order.*", retry=ONCE, group_commit=group_commit)
    def charge(event: Event[Any], session: Session) -> None:
        session.execute(EFFECT, {"n": event.payload["n"]})
        if event.payload["n"] == POISON:
            session.connection().commit()

    producer.add(*range(COUNT))

    async with consuming(outbox, sync_engine=sync_engine) as running:
        await running.settled("billing", COUNT)

    pool: Any = sync_engine.pool
    assert pool.checkedout() == 0
    assert database.idle_in_transaction() == []
    assert database.effects("billing") == ALL_BUT_POISON
    sync_engine.dispose()


async def test_the_result_of_an_attempt_that_was_undone_is_forgotten(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    """One of the group ends the transaction: the others are attempted again, in another group."""
    calls: list[int] = []

    @outbox.listener("billing", on="order.*", retry=ONCE)
    async def charge(event: Event[Any], session: AsyncSession) -> None:
        n = event.payload["n"]
        if n not in calls:
            event.leave_result(f"first of {n}")
        if n == POISON and n not in calls:
            calls.append(n)
            await session.execute(text("ROLLBACK"))
        calls.append(n)

    for n in range(COUNT):
        producer.add(n, key="a")

    async with consuming(outbox) as running:
        await running.settled("billing", COUNT)

    assert calls.count(1) == 2
    found = database.rows("SELECT result_ref FROM outbox_results ORDER BY result_ref")
    assert [row.result_ref for row in found] == ["first of 4", "first of 5"]
