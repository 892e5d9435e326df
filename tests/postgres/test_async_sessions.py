"""The session hooks under AsyncSession, with each asynchronous driver."""

from __future__ import annotations

import asyncio
import contextvars
from contextlib import suppress
from typing import Any

import pytest
from sqlalchemy import URL, Engine, NullPool, event, exc, select
from sqlalchemy.ext.asyncio import (
    AsyncEngine,
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import Session

from sa_outbox import AsyncOutboxSession, OutboxSession
from sa_outbox.errors import NotInstalled
from tests.postgres.conftest import CountingOutbox, Setup, setup_of
from tests.support.shop import Customer, Order

pytestmark = pytest.mark.anyio


@pytest.fixture
def log(engine: Engine) -> Setup:
    """The log as another program sees it; its outbox is the one that the tests use."""
    return setup_of("installed", engine)


@pytest.fixture(params=["asyncpg", "psycopg"])
def async_engine(request: pytest.FixtureRequest, migrated_url: URL) -> AsyncEngine:
    url = migrated_url.set(drivername=f"postgresql+{request.param}")
    return create_async_engine(url, poolclass=NullPool)


@pytest.fixture(params=["factory", "installed", "sync_session_class"])
def maker(
    request: pytest.FixtureRequest, log: Setup, async_engine: AsyncEngine
) -> async_sessionmaker[Any]:
    if request.param == "factory":
        return log.outbox.async_sessionmaker(async_engine)
    if request.param == "installed":
        return log.outbox.install(async_sessionmaker(async_engine))
    own = type("Own", (OutboxSession,), {})
    return async_sessionmaker(async_engine, sync_session_class=own, outbox=log.outbox)


@pytest.fixture
def sessions(log: Setup, async_engine: AsyncEngine) -> async_sessionmaker[AsyncOutboxSession]:
    return log.outbox.async_sessionmaker(async_engine)


async def test_events_follow_flush_savepoints_and_commit(
    log: Setup, maker: async_sessionmaker[Any]
) -> None:
    async with maker.begin() as session:
        log.outbox.add(session, "1")
        order = Order(name="a")
        order.record_event("2", lambda: {"id": order.id})
        session.add(order)
        await session.flush()
        async with session.begin_nested():
            log.outbox.add(session, "3")
        log.outbox.add(session, "4")
        savepoint = await session.begin_nested()
        log.outbox.add(session, "ghost")
        await savepoint.rollback()
        log.outbox.add(session, "5", lambda: order.id)

    assert log.rows() == [("1", None), ("2", {"id": 1}), ("3", None), ("4", None), ("5", 1)]
    assert log.outbox.pokes == 1


async def test_a_commit_of_nothing_but_events_writes_them(
    log: Setup, maker: async_sessionmaker[Any]
) -> None:
    async with maker() as session:
        log.outbox.add(session, "only")
        await session.commit()

    assert log.types() == ["only"]


async def test_close_and_rollback_leave_no_event(
    log: Setup, maker: async_sessionmaker[Any]
) -> None:
    async with maker() as session:
        log.outbox.add(session, "ghost")
    async with maker() as session:
        log.outbox.add(session, "ghost")
        await session.rollback()
        await session.commit()

    assert log.types() == []
    assert log.outbox.pokes == 0


async def test_add_event_needs_no_await(
    log: Setup, sessions: async_sessionmaker[AsyncOutboxSession]
) -> None:
    async with sessions.begin() as session:
        added = session.add_event("a", {"x": 1})
        assert log.outbox.pending(session) == (added,)

    assert log.rows() == [("a", {"x": 1})]


async def test_an_explicit_flush_of_a_clean_session_writes(
    log: Setup, maker: async_sessionmaker[Any]
) -> None:
    async with maker() as session:
        log.outbox.add(session, "a")
        await log.outbox.flush(session)

        assert log.outbox.pending(session) == ()
        assert len((await session.execute(select(log.outbox.tables.outbox))).all()) == 1
        await session.commit()

    assert log.types() == ["a"]


async def test_the_flush_of_an_outbox_session_writes_without_objects(
    log: Setup, sessions: async_sessionmaker[AsyncOutboxSession]
) -> None:
    async with sessions.begin() as session:
        session.add_event("a")
        await session.flush()

        assert log.outbox.pending(session) == ()


@pytest.mark.parametrize("written_by", ["flush", "commit", "savepoint"])
async def test_a_callable_may_load_lazily_wherever_it_is_evaluated(
    log: Setup, maker: async_sessionmaker[Any], written_by: str
) -> None:
    async with maker.begin() as session:
        session.add(Customer(name="c"))
        await session.flush()
        session.add(Order(name="stored", customer_id=1))

    async with maker.begin() as session:
        if written_by == "flush":
            order = Order(name="new", customer_id=1)
            session.add(order)
            order.record_event("e", lambda: order.customer.name if order.customer else None)
        else:
            stored = (await session.scalars(select(Order))).one()
            log.outbox.add(session, "e", lambda: stored.customer.name)
        if written_by == "savepoint":
            async with session.begin_nested():
                pass

    assert log.rows() == [("e", "c")]


async def test_a_vetoed_commit_leaves_add_free_of_io_and_a_late_hook_is_still_heard(
    log: Setup, maker: async_sessionmaker[Any]
) -> None:
    vetoes = [ValueError("veto")]

    def late(session: Session) -> None:
        if vetoes:
            raise vetoes.pop()
        log.outbox.add(session, "late")

    async with maker() as session:
        event.listen(session.sync_session, "before_commit", late)
        log.outbox.add(session, "a")
        with pytest.raises(ValueError, match="veto"):
            await session.commit()
        added = log.outbox.add(session, "b")  # outside of any greenlet: I/O would fail here

        assert log.outbox.pending(session) == (added,)
        await session.commit()

    assert log.types() == ["a", "b", "late"]


async def test_a_scoped_session_takes_events(log: Setup, maker: async_sessionmaker[Any]) -> None:
    scoped = async_scoped_session(maker, scopefunc=asyncio.current_task)
    log.outbox.add(scoped, "a")
    await log.outbox.flush(scoped)
    await scoped.commit()
    await scoped.remove()

    assert log.types() == ["a"]
    assert not hasattr(scoped, "add_event")  # its methods are fixed: use scoped().add_event


async def test_a_plain_async_session_refuses_events(log: Setup, async_engine: AsyncEngine) -> None:
    async with AsyncSession(async_engine) as session:
        with pytest.raises(NotInstalled):
            log.outbox.add(session, "a")


async def test_an_installed_async_session_class_works(
    log: Setup, async_engine: AsyncEngine
) -> None:
    own = log.outbox.install(type("Own", (AsyncSession,), {}))
    async with own(async_engine) as session:
        log.outbox.add(session, "a")
        await session.commit()

    assert log.types() == ["a"]


async def test_run_sync_may_add_and_commit(
    log: Setup, sessions: async_sessionmaker[AsyncOutboxSession]
) -> None:
    def work(session: Session) -> None:
        assert isinstance(session, OutboxSession)
        session.add_event("a")
        session.commit()

    async with sessions() as session:
        await session.run_sync(work)

    assert log.types() == ["a"]


async def test_concurrent_sessions_keep_each_their_order(
    log: Setup, sessions: async_sessionmaker[AsyncOutboxSession]
) -> None:
    async def work(task: int) -> None:
        for round_ in range(3):
            async with sessions.begin() as session:
                for number in range(3):
                    session.add_event("t", [task, round_, number])

    await asyncio.gather(*(work(number) for number in range(5)))

    payloads = [payload for _, payload in log.rows()]
    assert len(payloads) == 45
    for number in range(5):
        own = [payload for payload in payloads if payload[0] == number]
        assert own == sorted(own)


@pytest.mark.parametrize("turns", [1, 2, 3, 5])
async def test_a_commit_cancelled_half_way_is_all_or_nothing_and_the_session_goes_on(
    log: Setup, sessions: async_sessionmaker[AsyncOutboxSession], turns: int
) -> None:
    async with sessions() as session:
        await session.execute(
            select(1)
        )  # cancelled while it connects, asyncpg leaves a warning behind
        session.add_event("a", {"x": 1})
        committing = asyncio.create_task(session.commit())
        for _ in range(turns):
            await asyncio.sleep(0)
        committing.cancel()
        with suppress(asyncio.CancelledError):
            await committing
        await session.rollback()

        assert log.outbox.pending(session) == ()
        session.add_event("b")
        await session.commit()

    assert log.types() in (["b"], ["a", "b"])


async def test_a_savepoint_outside_of_a_greenlet_fails_as_for_changed_objects(
    log: Setup, sessions: async_sessionmaker[AsyncOutboxSession]
) -> None:
    async with sessions() as session:
        await session.execute(select(1))
        session.add_event("a")
        with pytest.raises(exc.SQLAlchemyError, match="greenlet_spawn has not been called"):
            session.sync_session.begin_nested()
        await session.rollback()

        session.add_event("b")
        await session.commit()

    assert log.types() == ["b"]


async def test_the_wakeup_runs_on_the_loop_and_sees_the_context_of_the_commit(
    log: Setup, async_engine: AsyncEngine
) -> None:
    """A trap: the end of ``maker.begin()`` commits in another task, with a copy of the context."""
    trace: contextvars.ContextVar[str] = contextvars.ContextVar("trace")
    seen: list[tuple[object, str]] = []

    class Watching(CountingOutbox):
        def _count(self, _engine: Engine) -> None:
            seen.append((asyncio.current_task(), trace.get()))

    maker = Watching().async_sessionmaker(async_engine)
    trace.set("mine")
    async with maker() as session:
        session.add_event("a")
        await session.commit()
    async with maker.begin() as session:
        session.add_event("b")

    (first, first_trace), (second, second_trace) = seen
    assert (first_trace, second_trace) == ("mine", "mine")
    assert first is asyncio.current_task()
    assert second is not first


def test_one_outbox_serves_many_loops(log: Setup, async_engine: AsyncEngine) -> None:
    maker = log.outbox.async_sessionmaker(async_engine)

    async def work() -> None:
        async with maker.begin() as session:
            session.add_event("x")

    for _ in range(3):
        asyncio.run(work())

    assert log.types() == ["x"] * 3
