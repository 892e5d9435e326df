"""What limits the handlers with a session of one process, and what helps?

Processor time of this process for one event, without the server's: what ``concurrency`` can't share
out, because a process has one event loop. Against a listener with the defaults, whose handler makes
one INSERT through the ``AsyncSession`` of its event:

- the same INSERT in a transaction that is open, without any listener: as asyncpg sends it, with
  Core on a connection, through a new ``AsyncSession`` for each, and that in a savepoint for each,
  which is one more round trip at the driver, as in a group;
- one transaction for each with an ``AsyncSession``;
- the listener with eight tasks, with Core on the session's connection, and with a handler that
  takes batches.

Then the speed of what takes less of it, against one transaction for each with an ``AsyncSession``;
and of two processes against one.

``python -m benchmarks.bench_processor``
"""

from __future__ import annotations

import time
from collections.abc import Sequence  # noqa: TC003 - read at run time
from typing import TYPE_CHECKING, Any

from sqlalchemy import insert, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, async_sessionmaker

from sa_outbox import Event, Outbox

from .alone import main
from .bench_handlers import handle
from .bench_processes import EVENTS as SHARED_EVENTS
from .bench_processes import WITH_A_SESSION, together
from .drains import drained, fill, prepared
from .measure import Contestant, costs, speeds, take_turns
from .shop import EFFECT, Base, Order

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sa_outbox.embedded import EmbeddedPostgres

    from .report import Report

COUNTED_EVENTS, EVENTS, ROUNDS = 1_000, 5_000, 5
CORE = insert(Base.metadata.tables["bench_orders"]).values(customer="c")
PLAIN = "INSERT INTO bench_orders (customer) VALUES ($1)"
NEXT = "RELEASE SAVEPOINT event; SAVEPOINT event"
"""As a listener does from one event of a group to the next."""


async def use_core(_event: Event[Any], session: AsyncSession) -> None:
    connection = await session.connection()
    await connection.execute(CORE)


async def handle_batch(events: Sequence[Event[Any]], session: AsyncSession) -> None:
    await session.execute(insert(Order), [{"customer": "c"} for _ in events])


LISTENERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "defaults": (handle, {}),
    "concurrency=8": (handle, {"concurrency": 8}),
    "Core in the handler": (use_core, {}),
    "Core in the handler, concurrency=8": (use_core, {"concurrency": 8}),
    "a handler of batches": (handle_batch, {}),
}


async def raw(connection: AsyncConnection) -> None:
    await (await driver_of(connection)).execute(PLAIN, "c")


async def core(connection: AsyncConnection) -> None:
    await connection.execute(CORE)


async def new_session(connection: AsyncConnection) -> None:
    async with AsyncSession(connection, join_transaction_mode="rollback_only") as session:
        await session.execute(EFFECT)
        await session.commit()


async def in_a_savepoint(connection: AsyncConnection) -> None:
    await new_session(connection)
    await (await driver_of(connection)).execute(NEXT)


async def driver_of(connection: AsyncConnection) -> Any:
    return (await connection.get_raw_connection()).driver_connection


def in_a_transaction(
    engine: AsyncEngine, act: Callable[[AsyncConnection], Awaitable[None]]
) -> Contestant:
    async def run_all() -> float:
        async with engine.begin() as connection:
            await connection.execute(text("SAVEPOINT event"))  # and so the transaction has begun
            began = time.process_time()
            for _ in range(COUNTED_EVENTS):
                await act(connection)
            return time.process_time() - began

    return run_all


def by_hand(engine: AsyncEngine, events: int, clock: Callable[[], float]) -> Contestant:
    sessions = async_sessionmaker(engine)

    async def run_all() -> float:
        began = clock()
        for _ in range(events):
            async with sessions.begin() as session:
                await session.execute(EFFECT)
        return clock() - began

    return run_all


def listeners(engine: AsyncEngine, clock: Callable[[], float]) -> dict[str, Contestant]:
    outbox = Outbox()

    def contestant(name: str) -> Contestant:
        return lambda: drained(outbox, engine, name, clock=clock)

    for number, (handler, options) in enumerate(LISTENERS.values()):
        outbox.listener(f"listener_{number}", on="order.placed", **options)(handler)
    return {row: contestant(f"listener_{number}") for number, row in enumerate(LISTENERS)}


def counted(engine: AsyncEngine) -> dict[str, Contestant]:
    return {
        **listeners(engine, time.process_time),
        "AsyncSession by hand": by_hand(engine, COUNTED_EVENTS, time.process_time),
        "an INSERT, asyncpg": in_a_transaction(engine, raw),
        "an INSERT, Core on a connection": in_a_transaction(engine, core),
        "an INSERT, a new AsyncSession": in_a_transaction(engine, new_session),
        "an INSERT, a new AsyncSession, a savepoint": in_a_transaction(engine, in_a_savepoint),
    }


def timed(engine: AsyncEngine) -> dict[str, Contestant]:
    return {
        "AsyncSession by hand": by_hand(engine, EVENTS, time.perf_counter),
        **listeners(engine, time.perf_counter),
    }


async def run(server: EmbeddedPostgres, report: Report) -> None:
    engine = await prepared(server.url("asyncpg"), pool_size=20)
    await fill(engine, COUNTED_EVENTS)
    times = await take_turns(counted(engine), ROUNDS)
    each = {row: [taken / COUNTED_EVENTS for taken in of] for row, of in times.items()}
    report.add(costs("processor", "processor time of one event, one INSERT", each))
    await fill(engine, EVENTS)
    title = f"a handler with a session and one INSERT, what helps, {EVENTS:,} events"
    report.add(speeds("processor-less", title, await take_turns(timed(engine), ROUNDS), EVENTS))

    def processes(number: int) -> Contestant:
        return lambda: together(server.url(), engine, WITH_A_SESSION, number)

    contestants = {"one process": processes(1), "two processes": processes(2)}
    times = await take_turns(contestants, ROUNDS, warm=False)
    title = f"{SHARED_EVENTS:,} events, a handler with a session, {WITH_A_SESSION}"
    report.add(speeds("processor-shared", title, times, SHARED_EVENTS))
    await engine.dispose()


if __name__ == "__main__":
    main("bench_processor", run)
