"""A listener in partitions: each with its own cursor and lease, shared among the processes."""

from __future__ import annotations

from collections import Counter
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import anyio
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from sa_outbox import Event, Outbox
from sa_outbox.consumer.position.partition import partition_of
from sa_outbox.errors import ConfigError
from sa_outbox.observe import LeaseClaimed, LeaseReleased, PartitionsDiffer
from sa_outbox.settings import Notify
from tests.postgres.consumer.conftest import (
    LATER,
    Consuming,
    Database,
    Producer,
    Running,
    make_consumer,
)
from tests.support import comes_true

pytestmark = pytest.mark.anyio

EFFECT = text("INSERT INTO effects VALUES ('billing', :n)")
COUNT = 4
KEYS = [f"order {number}" for number in range(12)]
HELD = "SELECT partition, locked_by FROM outbox_listeners WHERE name = 'billing' ORDER BY partition"


@pytest.fixture
def seen(outbox: Outbox) -> list[tuple[str | None, int]]:
    """(key, n) in the order in which they were handled."""
    handled: list[tuple[str | None, int]] = []

    @outbox.listener("billing", on="order.*", partitions=COUNT, concurrency=2, retry=LATER)
    async def charge(event: Event[Any], session: AsyncSession) -> None:
        if event.payload["n"] < 0:
            raise ValueError("told to fail")
        await session.execute(EFFECT, {"n": event.payload["n"]})
        handled.append((event.key, event.payload["n"]))

    return handled


def add(producer: Producer, count: int, first: int = 0) -> None:
    """One transaction each, the keys in turn."""
    for number in range(first, first + count):
        producer.add(number, key=KEYS[number % len(KEYS)])


def in_order_of_keys(seen: list[tuple[str | None, int]]) -> bool:
    return all(
        [n for key, n in seen if key == one] == sorted(n for key, n in seen if key == one)
        for one in {key for key, _ in seen}
    )


def held(database: Database) -> Counter[str]:
    """How many partitions each consumer holds."""
    return Counter(row.locked_by for row in database.rows(HELD) if row.locked_by is not None)


def is_shared(database: Database, *shares: int) -> bool:
    return sorted(held(database).values()) == sorted(shares)


async def shared(database: Database, *shares: int, within: float = 10.0) -> None:
    await comes_true(lambda: is_shared(database, *shares), within=within)


async def test_keys_keep_their_order_and_each_partition_has_its_own_cursor(
    outbox: Outbox,
    producer: Producer,
    database: Database,
    consuming: Consuming,
    seen: list[tuple[str | None, int]],
) -> None:
    async with consuming(outbox) as running:
        add(producer, 48)
        producer.add(48, 49, 50, 51, 52)  # without a key
        await running.done("billing", 53)
        await running.consumer.drain()

    assert database.effects("billing") == list(range(53))
    assert in_order_of_keys([each for each in seen if each[0] is not None])
    rows = database.rows("SELECT * FROM outbox_listeners ORDER BY partition")
    assert [(row.partition, row.partition_count) for row in rows] == [(n, 4) for n in range(4)]
    assert all(row.last_processed_id == 53 and row.gaps == [] for row in rows)
    assert min(row.revision for row in rows) > 0, "one did nothing"


async def test_an_event_that_is_read_for_all_at_once_is_handled_by_its_own_partition_only(
    outbox: Outbox,
    producer: Producer,
    database: Database,
    consuming: Consuming,
    seen: list[tuple[str | None, int]],
) -> None:
    async with consuming(outbox) as running:
        await running.listening()
        for number in range(12):
            add(producer, 1, first=number)
            await running.done("billing", number + 1)
        await running.consumer.drain()

    assert database.effects("billing") == list(range(12))


async def test_an_event_that_fails_holds_up_its_key_in_its_own_partition(
    outbox: Outbox,
    producer: Producer,
    database: Database,
    consuming: Consuming,
    seen: list[tuple[str | None, int]],
) -> None:
    async with consuming(outbox) as running:
        producer.add(-1, key="bad")
        await running.settled("billing", outcome="retry")
        add(producer, 12)
        producer.add(100, key="bad")
        await running.done("billing", 12)
        await comes_true(lambda: len(database.deliveries("billing")) == 2)

    parts = {(row.state, row.partition) for row in database.deliveries("billing")}
    part = partition_of("bad", 1, COUNT)
    assert parts == {("parked", part), ("behind", part)}

    database.rows("UPDATE outbox_deliveries SET due_at = clock_timestamp() WHERE state = 'parked'")
    async with consuming(outbox) as running:
        await running.dead("billing")
        await running.done("billing")

    assert seen[-1] == ("bad", 100)
    assert database.deliveries("billing") == []


async def test_two_consumers_have_two_partitions_each_and_the_third_gets_its_share(
    outbox: Outbox,
    producer: Producer,
    database: Database,
    consuming: Consuming,
    seen: list[tuple[str | None, int]],
) -> None:
    async with consuming(outbox) as first:
        await shared(database, 4)
        async with consuming(outbox) as second:
            await shared(database, 2, 2)
            add(producer, 24)
            async with consuming(outbox) as third:
                await shared(database, 2, 1, 1)
                add(producer, 24, first=24)
                await comes_true(lambda: len(seen) == 48)
            await shared(database, 2, 2)
        await shared(database, 4)
        for running in (first, second, third):
            moved = len(running.recorder.of(LeaseClaimed)), len(running.recorder.of(LeaseReleased))
            assert max(moved) <= 8, "back and forth"

    assert database.effects("billing") == list(range(48))
    assert in_order_of_keys(seen)


async def test_who_joins_has_its_share_within_a_second(
    outbox: Outbox,
    database: Database,
    consuming: Consuming,
    seen: list[tuple[str | None, int]],
    notify: Notify,
) -> None:
    async with consuming(outbox) as first:
        await first.listening()
        async with consuming(outbox):
            await shared(database, 2, 2, within=2.0)


async def test_a_handler_that_runs_is_finished_before_its_partition_is_handed_over(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    begun, go_on = Counter[str](), anyio.Event()

    @outbox.listener("billing", on="order.*", partitions=COUNT)
    async def charge(event: Event[Any]) -> None:
        begun[event.key or ""] += 1
        await go_on.wait()

    for key in KEYS:
        producer.add(1, key=key)
    async with consuming(outbox) as first:
        await comes_true(lambda: len(begun) == COUNT)
        async with consuming(outbox):
            await comes_true(lambda: any(each.is_stopping for each in loops(first)))
            assert is_shared(database, 4)
            go_on.set()
            await shared(database, 2, 2)
            await comes_true(lambda: len(begun) == len(KEYS))

    assert set(begun.values()) == {1}


def loops(running: Running) -> list[Any]:
    services = running.consumer._services
    return [] if services is None else list(services.workload.holder.loops.values())


async def test_the_partitions_of_one_that_died_are_taken_over_when_its_leases_expire(
    outbox: Outbox,
    producer: Producer,
    database: Database,
    consuming: Consuming,
    seen: list[tuple[str | None, int]],
) -> None:
    lease = timedelta(seconds=6)  # none of ours is lost, also while others use the machine
    async with consuming(outbox, lease_duration=lease):
        await shared(database, 4)
    database.rows(
        "UPDATE outbox_listeners SET locked_by = 'who died', lease_token = lease_token + 1,"
        " lease_expires_at = clock_timestamp() + interval '500 ms' WHERE partition < 2"
    )
    database.rows(
        "INSERT INTO outbox_consumers (owner, listeners, expires_at) VALUES"
        " ('who died', '{billing}', clock_timestamp() + interval '500 ms')"
    )
    add(producer, 24)
    async with consuming(outbox, lease_duration=lease) as running:
        await running.done("billing", 24)
        claimed = running.recorder.of(LeaseClaimed)

    assert {each.partition: each.after_crash for each in claimed} == {
        0: True,
        1: True,
        2: False,
        3: False,
    }
    assert database.effects("billing") == list(range(24))
    assert in_order_of_keys(seen)


async def test_what_a_live_process_never_claims_is_claimed_by_another(
    outbox: Outbox, database: Database, consuming: Consuming, seen: list[tuple[str | None, int]]
) -> None:
    database.rows(
        "INSERT INTO outbox_consumers (owner, listeners, expires_at)"
        " VALUES ('a stuck one', '{billing}', clock_timestamp() + interval '1 hour')"
    )
    async with consuming(outbox):
        await shared(database, 4)


async def test_several_listeners_are_spread_over_the_processes(
    outbox: Outbox, database: Database, consuming: Consuming
) -> None:
    for name in ("one", "two", "three", "four", "five"):

        @outbox.listener(name, on="*")
        async def note(event: Event[Any]) -> None:
            pass

    owners = "SELECT locked_by FROM outbox_listeners WHERE locked_by IS NOT NULL"

    def shares() -> list[int]:
        return sorted(Counter(row.locked_by for row in database.rows(owners)).values())

    async with AsyncExitStack() as stack:
        await stack.enter_async_context(consuming(outbox))
        await comes_true(lambda: shares() == [5])
        await stack.enter_async_context(consuming(outbox))
        await comes_true(lambda: shares() == [2, 3])


async def test_draining_takes_everything_that_is_free_and_no_share_is_made_for_it(
    outbox: Outbox,
    producer: Producer,
    database: Database,
    consuming: Consuming,
    seen: list[tuple[str | None, int]],
) -> None:
    add(producer, 24)
    drainer, recorder = make_consumer(outbox, database.engine)
    await drainer.drain()
    assert len(seen) == 24
    assert len(recorder.of(LeaseClaimed)) == COUNT

    async with consuming(outbox) as running:
        await shared(database, 4)
        add(producer, 24, first=24)
        await drainer.drain()
        assert len(seen) == 48
        assert running.recorder.of(LeaseReleased) == []


async def test_the_number_in_the_database_holds_and_another_declaration_is_told_once(
    outbox: Outbox,
    producer: Producer,
    database: Database,
    consuming: Consuming,
    seen: list[tuple[str | None, int]],
) -> None:
    async with consuming(outbox) as running:
        await shared(database, 4)
        assert running.recorder.of(PartitionsDiffer) == []
    newer = Outbox(notify=outbox.settings.notify)

    @newer.listener("billing", on="order.*", partitions=8)
    async def charge(event: Event[Any]) -> None:
        seen.append((event.key, event.payload["n"]))

    async with consuming(newer) as running:
        add(producer, 24)
        await running.done("billing", 24)
        assert running.recorder.of(PartitionsDiffer) == [PartitionsDiffer("billing", 4, 8)]

    assert database.value("SELECT count(*) FROM outbox_listeners") == COUNT
    assert len(seen) == 24


async def test_a_listener_of_several_partitions_is_not_run_in_total_order(
    outbox: Outbox, consuming: Consuming, seen: list[tuple[str | None, int]]
) -> None:
    async with consuming(outbox):
        pass
    other = Outbox(notify=outbox.settings.notify)

    @other.listener("billing", on="order.*", order="total")
    async def charge(event: Event[Any]) -> None:
        raise NotImplementedError

    with pytest.raises(ConfigError, match="4 partitions"):
        async with consuming(other):
            pass
