"""``drain(outbox, engine)`` of ``sa_outbox.testing``: a real consumer, with the clock in hand."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import URL, Engine, NullPool, func, select
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from sa_outbox import Event, Outbox, RetryPolicy
from sa_outbox.clock import Clock
from sa_outbox.clock import clock as the_clock
from sa_outbox.errors import ConfigError, OutboxError
from sa_outbox.testing import drain, empty

AT_ONCE = RetryPolicy(schedule=[timedelta(microseconds=1), timedelta(days=3)])


@pytest.fixture
def outbox() -> Outbox:
    return Outbox(notify="off")


@pytest.fixture
def clock() -> Iterator[Clock]:
    yield the_clock
    the_clock.reset()


def add(outbox: Outbox, engine: Engine, name: str, payload: Any = None) -> None:
    with outbox.sessionmaker(engine).begin() as session:
        session.add_event(name, payload)


def test_what_handlers_add_is_delivered_too(outbox: Outbox, engine: Engine) -> None:
    @outbox.listener("steps", on="step")
    async def step(event: Event[int], session: AsyncSession) -> None:
        if event.payload < 3:
            outbox.add(session, "step", event.payload + 1)

    add(outbox, engine, "step", 1)

    deliveries = drain(outbox, engine)

    deliveries.expect_done()
    assert len(deliveries) == 3
    assert len(drain(outbox, engine)) == 0


def test_handlers_that_answer_each_other_forever_come_to_an_end(
    outbox: Outbox, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sa_outbox.testing.consumer_run.MAX_ROUNDS", 3)

    @outbox.listener("echo", on="again")
    async def echo(event: Event[Any], session: AsyncSession) -> None:
        outbox.add(session, "again")

    add(outbox, engine, "again")

    with pytest.raises(OutboxError, match="3 rounds"):
        drain(outbox, engine)


def test_a_retry_waits_until_the_clock_is_moved_however_short_its_delay(
    outbox: Outbox, engine: Engine, clock: Clock
) -> None:
    @outbox.listener("billing", on="order", retry=AT_ONCE)
    async def bill(event: Event[Any]) -> None:
        raise ValueError("declined")

    add(outbox, engine, "order")

    first = drain(outbox, engine).one("billing")
    clock.advance(seconds=1)
    second = drain(outbox, engine).one("billing")
    clock.advance(days=3)
    third = drain(outbox, engine).one("billing")

    assert [each.outcome for each in (first, second, third)] == ["retry", "retry", "dead"]
    assert [each.attempt for each in (first, second, third)] == [1, 2, 3]
    assert second.due_at is not None
    assert timedelta(days=2) < second.due_at - clock.current() + timedelta(days=3)
    assert first.failure is not None
    assert (first.failure.error, third.reason) == ("ValueError", "attempts")


@pytest.mark.anyio
async def test_an_async_engine_is_used_in_the_loop_of_the_test(
    outbox: Outbox, engine: Engine, migrated_url: URL
) -> None:
    asynchronous = create_async_engine(
        migrated_url.set(drivername="postgresql+asyncpg"), poolclass=NullPool
    )

    @outbox.listener("billing", on="order")
    async def bill(event: Event[Any]) -> None: ...

    add(outbox, engine, "order")

    (await drain(outbox, asynchronous, listeners=["billing"])).expect_done()
    with pytest.raises(ConfigError, match="no listener 'male'"):
        await drain(outbox, asynchronous, listeners=["male"])


def test_emptied_nothing_is_left_and_everything_works(outbox: Outbox, engine: Engine) -> None:
    @outbox.listener("billing", on="order", retry=AT_ONCE)
    async def bill(event: Event[Any]) -> None:
        if event.payload == "broken":
            raise ValueError("declined")

    add(outbox, engine, "order", "broken")
    drain(outbox, engine)

    with engine.begin() as connection:
        empty(outbox, connection)
        tables = outbox.tables
        for table in tables.metadata.sorted_tables:
            rows = connection.scalar(select(func.count()).select_from(table))
            assert rows == (1 if table is tables.meta else 0), table.name

    add(outbox, engine, "order", "fine")
    assert drain(outbox, engine).one("billing").outcome == "done"
