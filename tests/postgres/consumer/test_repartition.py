"""Changing the number of partitions: order kept, nothing lost, nothing twice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from importlib import import_module
from pathlib import Path
from threading import Event as Flag
from threading import Thread
from typing import Any

import anyio
import pytest
from click.testing import CliRunner
from sqlalchemy import URL, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from sa_outbox import Event, Outbox
from sa_outbox.cli import main
from sa_outbox.consumer import Consumer, repartition
from sa_outbox.consumer.position.partition import partition_of
from sa_outbox.errors import ConfigError, NotRepartitioned
from tests.postgres.consumer.conftest import (
    LATER,
    Consuming,
    Database,
    Producer,
    make_consumer,
)
from tests.support import PATIENCE, comes_true

pytestmark = pytest.mark.anyio

EFFECT = text("INSERT INTO effects VALUES ('billing', :n)")
ROWS = "SELECT * FROM outbox_listeners WHERE name = 'billing' ORDER BY partition"


@pytest.fixture
def seen(outbox: Outbox) -> list[tuple[str | None, int]]:
    handled: list[tuple[str | None, int]] = []

    @outbox.listener("billing", on="order.*", partitions=4, concurrency=3, retry=LATER)
    async def charge(event: Event[Any], session: AsyncSession) -> None:
        if event.payload["n"] < 0:
            raise ValueError("told to fail")
        await session.execute(EFFECT, {"n": event.payload["n"]})
        handled.append((event.key, event.payload["n"]))

    return handled


@contextmanager
def writing(producer: Producer) -> Iterator[list[int]]:
    """Events of ten keys all the time, of each key in the order of their numbers."""
    written: list[int] = []
    stop = Flag()

    def run() -> None:
        while not stop.wait(0.002):
            number = len(written)
            producer.add(number, key=f"k{number % 10}")
            written.append(number)

    thread = Thread(target=run)
    thread.start()
    try:
        yield written
    finally:
        stop.set()
        thread.join()


def partitions(database: Database) -> list[Any]:
    return database.rows(ROWS)


async def test_4_8_3_under_load_keeps_the_order_of_keys_and_each_effect_is_made_once(
    outbox: Outbox,
    producer: Producer,
    database: Database,
    consuming: Consuming,
    async_engine: AsyncEngine,
    seen: list[tuple[str | None, int]],
) -> None:
    async with consuming(outbox) as first, consuming(outbox):
        with writing(producer) as written:
            for before, after in ((4, 8), (8, 3)):
                enough = len(seen) + 50
                await comes_true(lambda: len(seen) > enough)  # noqa: B023 - called at once
                with anyio.fail_after(PATIENCE):
                    assert await repartition(outbox, async_engine, "billing", after) == before
        await first.consumer.drain()
        await comes_true(lambda: len(seen) >= len(written))

    assert database.effects("billing") == list(range(len(written)))
    for key in {key for key, _ in seen}:
        numbers = [n for one, n in seen if one == key]
        assert numbers == sorted(numbers), key
    rows = partitions(database)
    assert [(row.partition, row.partition_count) for row in rows] == [(0, 3), (1, 3), (2, 3)]
    assert all(row.barrier is None for row in rows)


async def test_parked_events_and_what_is_behind_them_go_to_their_new_partition(
    outbox: Outbox,
    producer: Producer,
    database: Database,
    consuming: Consuming,
    async_engine: AsyncEngine,
    seen: list[tuple[str | None, int]],
) -> None:
    names = [f"bad {number}" for number in range(6)]
    async with consuming(outbox) as running:
        for key in names:
            producer.add(-1, key=key)
            producer.add(1, key=key)
        await comes_true(lambda: len(database.deliveries("billing")) == 12)
        await repartition(outbox, async_engine, "billing", 7)
        for key in names:
            producer.add(2, key=key)
        await comes_true(lambda: len(database.deliveries("billing")) == 18)
        for row in database.deliveries("billing"):
            assert row.partition == partition_of(row.key, row.position, 7)
        database.rows(
            "UPDATE outbox_deliveries SET due_at = clock_timestamp() WHERE state = 'parked'"
        )
        await running.consumer.drain()
        await running.stop()

    async with consuming(outbox) as running:
        await running.consumer.drain()
    assert sorted(seen) == sorted((key, n) for key in names for n in (1, 2))
    assert [n for key, n in seen if key == names[0]] == [1, 2]


async def test_without_consumers_it_is_done_at_once_and_goes_on_where_each_partition_was(
    outbox: Outbox,
    producer: Producer,
    database: Database,
    consuming: Consuming,
    async_engine: AsyncEngine,
    seen: list[tuple[str | None, int]],
) -> None:
    for n in range(40):
        producer.add(n, key=f"k{n}")
    async with consuming(outbox) as running:
        await running.done("billing", 40)
    # One partition is behind, with a gap: as if it had died.
    database.rows("UPDATE outbox_listeners SET last_processed_id = 20, gaps = '[[5, 8]]'"
                  " WHERE partition = 2")  # fmt: skip
    behind = [
        n
        for n in range(40)
        if partition_of(f"k{n}", n + 1, 4) == 2 and (n + 1 > 20 or 5 <= n + 1 <= 8)
    ]
    seen.clear()

    with anyio.fail_after(PATIENCE):
        await repartition(outbox, async_engine, "billing", 8)

    async with consuming(outbox) as running:
        await running.consumer.drain()
    assert behind
    assert sorted(n for _, n in seen) == behind


async def test_an_event_whose_transaction_is_open_meanwhile_comes_to_its_new_partition(
    outbox: Outbox,
    producer: Producer,
    database: Database,
    consuming: Consuming,
    async_engine: AsyncEngine,
    seen: list[tuple[str | None, int]],
) -> None:
    async with consuming(outbox) as running:
        with producer.open() as session:
            for n in range(5):
                session.add_event("order.placed", {"n": n}, key=f"late {n}")
            session.flush()
            for n in range(5, 25):
                producer.add(n, key=f"k{n}")
            await running.done("billing", 20)
            await repartition(outbox, async_engine, "billing", 8)
            assert [row.gaps for row in partitions(database)] == [[[1, 5]]] * 8
            await repartition(outbox, async_engine, "billing", 3)
        await running.done("billing", 25)
        await running.consumer.drain()

    assert database.effects("billing") == list(range(25))


async def test_a_handler_is_waited_for_and_after_the_time_all_goes_on_as_before(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming,
    async_engine: AsyncEngine,
) -> None:  # fmt: skip
    begun, go_on, handled = anyio.Event(), anyio.Event(), []

    @outbox.listener("billing", on="order.*", partitions=2)
    async def charge(event: Event[Any]) -> None:
        if event.payload["n"] == 0:
            begun.set()
            await go_on.wait()
        handled.append(event.payload["n"])

    async with consuming(outbox) as running:
        producer.add(0, key="slow")
        await begun.wait()
        with pytest.raises(NotRepartitioned, match="are held"):
            await repartition(
                outbox, async_engine, "billing", 5, within=timedelta(milliseconds=500)
            )
        assert [row.barrier for row in partitions(database)] == [None, None]
        go_on.set()
        for n in range(1, 20):
            producer.add(n, key=f"k{n}")
        await running.done("billing", 20)

    assert sorted(handled) == list(range(20))


async def test_the_barrier_of_an_operation_that_was_killed_holds_nobody_up_for_long(
    outbox: Outbox,
    producer: Producer,
    database: Database,
    consuming: Consuming,
    async_engine: AsyncEngine,
    seen: list[tuple[str | None, int]],
) -> None:
    async with consuming(outbox):
        pass
    database.rows(
        "UPDATE outbox_listeners SET barrier = 0,"
        " barrier_expires_at = clock_timestamp() + interval '1 second'"
    )
    producer.add(1, key="k")
    async with consuming(outbox) as running:
        await running.done("billing")

    # And doing it again does it.
    assert await repartition(outbox, async_engine, "billing", 2) == 4
    assert await repartition(outbox, async_engine, "billing", 2) == 2


async def test_draining_does_not_end_at_a_barrier(
    outbox: Outbox, producer: Producer, database: Database, seen: list[tuple[str | None, int]]
) -> None:
    drainer, _ = make_consumer(outbox, database.engine)
    await drainer.drain()
    database.rows(
        "UPDATE outbox_listeners SET barrier = 0,"
        " barrier_expires_at = clock_timestamp() + interval '500 ms'"
    )
    producer.add(1, key="k")

    await drainer.drain(retries=False)

    assert seen == [("k", 1)]


async def test_whoever_slept_through_it_can_write_nothing(
    outbox: Outbox,
    producer: Producer,
    database: Database,
    consuming: Consuming,
    async_engine: AsyncEngine,
) -> None:
    begun, go_on, attempts = anyio.Event(), anyio.Event(), 0

    @outbox.listener("billing", on="order.*", partitions=2)
    async def charge(event: Event[Any], session: AsyncSession) -> None:
        nonlocal attempts
        attempts += 1
        await session.execute(EFFECT, {"n": event.payload["n"]})
        if attempts == 1:
            begun.set()
            await go_on.wait()

    async with consuming(outbox) as running:
        producer.add(1, key="k")
        await begun.wait()
        # By the clock of the database its lease has expired.
        database.rows("UPDATE outbox_listeners SET lease_expires_at = clock_timestamp()")
        await repartition(outbox, async_engine, "billing", 3)
        go_on.set()
        await running.done("billing")
        await running.consumer.drain()

    assert attempts == 2
    assert database.effects("billing") == [1]


async def test_bad_input_is_refused(outbox: Outbox, async_engine: AsyncEngine) -> None:
    @outbox.listener("strict", on="*", order="total")
    async def handler(event: Event[Any]) -> None:
        raise NotImplementedError

    outbox.listener("shared", on="*", order="none")(handler)
    for count in (0, 257, True, "8"):
        with pytest.raises(ConfigError, match="from 1 to 256"):
            await repartition(outbox, async_engine, "billing", count)  # type: ignore[arg-type]
    for name in ("strict", "shared"):
        with pytest.raises(ConfigError, match=r"has order='.*', and so one partition"):
            await repartition(outbox, async_engine, name, 2)
    with pytest.raises(ConfigError, match="no listener 'nobody'"):
        await repartition(outbox, async_engine, "nobody", 2)


@pytest.mark.parametrize("order", ["total", "none"])
async def test_a_listener_with_another_order_keeps_its_one_partition_whoever_asks(
    order: Any, outbox: Outbox, producer: Producer, database: Database, async_engine: AsyncEngine
) -> None:
    """The database does not know the order: only a program that declares the listener does."""
    got: list[int] = []

    @outbox.listener("billing", on="order.*", order=order)
    async def charge(event: Event[Any]) -> None:
        got.append(event.payload["n"])

    consumer = Consumer(outbox, async_engine)
    await consumer.drain()
    with pytest.raises(ConfigError, match="one partition"):
        await repartition(outbox, async_engine, "billing", 4)
    with pytest.raises(ConfigError, match="declares no listener 'billing'"):
        await repartition(Outbox(notify="off"), async_engine, "billing", 4)
    assert await repartition(outbox, async_engine, "billing", 1) == 1
    producer.add(1, 2, 3)
    await consumer.drain()

    assert sorted(got) == [1, 2, 3]
    assert database.listener("billing").partition_count == 1


async def test_a_partition_that_is_far_behind_catches_up_while_the_others_wait(
    outbox: Outbox,
    producer: Producer,
    database: Database,
    consuming: Consuming,
    async_engine: AsyncEngine,
    seen: list[tuple[str | None, int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = import_module("sa_outbox.consumer.repartition")  # its function has the same name
    monkeypatch.setattr(module, "MAX_EVENTS", 100)
    monkeypatch.setattr(module, "MAX_RANGES", 20)
    async with consuming(outbox):
        pass
    with producer.open() as session:
        for n in range(400):
            session.add_event("order.placed", {"n": n}, key=f"k{n % 97}")
    database.rows("UPDATE outbox_listeners SET last_processed_id = 400 WHERE partition > 0")
    with pytest.raises(NotRepartitioned, match="far apart"):
        await repartition(outbox, async_engine, "billing", 5, within=timedelta(milliseconds=300))

    # As they are written: a moment later the new partitions are worked on, and have others.
    replaced: list[tuple[int, int]] = []
    replace = module._Repartition._replace

    async def noting(self: Any, connection: Any, rows: Any, position: int, gaps: Any) -> None:
        replaced.append((len({row["position"] for row in rows}), len(gaps)))
        await replace(self, connection, rows, position, gaps)

    monkeypatch.setattr(module._Repartition, "_replace", noting)

    async with consuming(outbox):
        with anyio.fail_after(40):
            assert await repartition(outbox, async_engine, "billing", 5) == 4
        [(places, ranges)] = replaced
        assert places == 1 or ranges <= 20  # they were not far apart any more
        expected = sum(partition_of(f"k{n % 97}", n + 1, 4) == 0 for n in range(400))
        await comes_true(lambda: len(database.effects("billing")) == expected, within=20)

    assert len(seen) == expected


PROGRAM = """
from sa_outbox import Event, Outbox

outbox = Outbox()

@outbox.listener("billing", on="order.*", partitions=4)
async def charge(event: Event) -> None:
    pass
"""


async def test_the_command_does_it_too(
    outbox: Outbox,
    database: Database,
    consuming: Consuming,
    migrated_url: URL,
    seen: list[tuple[str | None, int]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "divided_app.py").write_text(PROGRAM)
    monkeypatch.syspath_prepend(tmp_path)
    async with consuming(outbox):
        await comes_true(lambda: len(partitions(database)) == 4)
        environment = {"SA_OUTBOX_DATABASE_URL": migrated_url.render_as_string(hide_password=False)}
        invoke = partial(CliRunner().invoke, main, env=environment)
        done = await anyio.to_thread.run_sync(invoke, ["repartition", "billing", "6"])
        unknown = await anyio.to_thread.run_sync(invoke, ["repartition", "biling", "6"])
        await anyio.to_thread.run_sync(invoke, ["repartition", "billing", "1"])
        whose = await anyio.to_thread.run_sync(invoke, ["repartition", "billing", "6"])
        again = ["repartition", "billing", "6", "--app", "divided_app:outbox"]
        divided = await anyio.to_thread.run_sync(invoke, again)

    assert done.stdout == "listener billing: 4 -> 6 partitions\n"
    assert (done.exit_code, unknown.exit_code, whose.exit_code) == (0, 2, 2)
    assert "--app MODULE:ATTRIBUTE" in whose.stderr
    assert divided.stdout == "listener billing: 1 -> 6 partitions\n"
    assert "no listener 'biling'; did you mean 'billing'?" in unknown.stderr
    assert len(partitions(database)) == 6
