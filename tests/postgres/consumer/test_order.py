"""In which order, and how many at a time."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import anyio
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from sa_outbox import Event, Outbox
from sa_outbox.observe import LeaseClaimed

from .conftest import Consuming, Database, Producer

pytestmark = [pytest.mark.anyio, pytest.mark.matrix]


async def test_total_is_the_order_of_the_log_whatever_the_keys(
    outbox: Outbox, producer: Producer, consuming: Consuming
) -> None:
    got: list[int | None] = []

    @outbox.listener("billing", on="order.*", order="total")
    async def charge(event: Event[Any]) -> None:
        await anyio.lowlevel.checkpoint()
        got.append(event.position)

    async with consuming(outbox) as running:
        for n in range(40):
            producer.add(n, key=f"key {n % 5}" if n % 3 else None)
        await running.done("billing", 40)

    assert got == list(range(1, 41))


async def test_events_of_one_key_keep_their_order_beside_others(
    outbox: Outbox, producer: Producer, consuming: Consuming
) -> None:
    got: defaultdict[str | None, list[int]] = defaultdict(list)

    @outbox.listener("billing", on="order.*", concurrency=8, batch_size=16)
    async def charge(event: Event[Any]) -> None:
        n = event.payload["n"]
        for _ in range(n % 7):  # some take longer than others
            await anyio.lowlevel.checkpoint()
        got[event.key].append(n)

    async with consuming(outbox) as running:
        for n in range(120):
            producer.add(n, key=f"key {n % 12}")
        await running.done("billing", 120)

    assert dict(got) == {f"key {k}": list(range(k, 120, 12)) for k in range(12)}


async def test_events_of_one_key_never_run_side_by_side(
    outbox: Outbox, producer: Producer, consuming: Consuming
) -> None:
    inside: Counter[str | None] = Counter()
    most = 0

    @outbox.listener("billing", on="order.*", concurrency=4)
    async def charge(event: Event[Any]) -> None:
        nonlocal most
        inside[event.key] += 1
        most = max(most, inside[event.key])
        await anyio.lowlevel.checkpoint()
        inside[event.key] -= 1

    for n in range(40):
        producer.add(n, key=f"key {n % 2}")

    async with consuming(outbox) as running:
        await running.done("billing", 40)

    assert most == 1


async def test_a_key_stays_with_its_event_while_earlier_ones_are_settled(
    outbox: Outbox, producer: Producer, consuming: Consuming
) -> None:
    """The first is quick and settled while the second runs: the third has to wait for that one."""
    begun: list[int] = []
    settled = anyio.Event()

    @outbox.listener("billing", on="order.*", concurrency=2)
    async def charge(event: Event[Any]) -> None:
        begun.append(event.payload["n"])
        if event.payload["n"] == 2:
            await settled.wait()
            for _ in range(10):
                await anyio.lowlevel.checkpoint()
            assert begun == [1, 2]

    producer.add(1, 2, 3, key="a")

    async with consuming(outbox) as running:
        await running.done("billing")
        settled.set()
        await running.done("billing", 3)

    assert begun == [1, 2, 3]


async def test_different_keys_run_side_by_side(
    outbox: Outbox, producer: Producer, consuming: Consuming
) -> None:
    """Each waits for the other: one after the other, neither would ever end."""
    inside = {"a": anyio.Event(), "b": anyio.Event()}

    @outbox.listener("billing", on="order.*", concurrency=2)
    async def charge(event: Event[Any]) -> None:
        assert event.key is not None
        inside[event.key].set()
        for each in inside.values():
            await each.wait()

    async with consuming(outbox) as running:
        producer.add(1, key="a")
        producer.add(2, key="b")
        await running.done("billing", 2)


async def test_events_without_a_key_run_side_by_side(
    outbox: Outbox, producer: Producer, consuming: Consuming
) -> None:
    inside = {1: anyio.Event(), 2: anyio.Event()}

    @outbox.listener("billing", on="order.*", concurrency=2)
    async def charge(event: Event[Any]) -> None:
        inside[event.payload["n"]].set()
        for each in inside.values():
            await each.wait()

    async with consuming(outbox) as running:
        producer.add(1, 2)
        await running.done("billing", 2)


@pytest.mark.parametrize("with_session", [False, True], ids=["plain", "session"])
async def test_no_more_run_at_once_than_concurrency_says(
    with_session: bool, outbox: Outbox, producer: Producer, consuming: Consuming
) -> None:
    inside = most = 0
    full = anyio.Event()

    async def work() -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        if inside == 3:
            full.set()
        await full.wait()
        await anyio.lowlevel.checkpoint()
        inside -= 1

    if with_session:

        @outbox.listener("billing", on="order.*", concurrency=3)
        async def charge_in_session(event: Event[Any], session: AsyncSession) -> None:
            await work()
    else:

        @outbox.listener("billing", on="order.*", concurrency=3)
        async def charge(event: Event[Any]) -> None:
            await work()

    producer.add(*range(30))

    async with consuming(outbox) as running:
        await running.done("billing", 30)

    assert most == 3


async def test_a_slow_event_does_not_keep_the_cursor_from_saving_the_others(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    hurry = anyio.Event()

    @outbox.listener("billing", on="order.*", concurrency=2)
    async def charge(event: Event[Any]) -> None:
        if event.payload["n"] == 1:
            await hurry.wait()

    async with consuming(outbox) as running:
        producer.add(1, key="slow")
        producer.add(2, 3, 4, key="quick")
        await running.done("billing", 3)
        saved = database.listener("billing")
        hurry.set()
        await running.done("billing", 4)

    assert (saved.last_processed_id, saved.gaps) == (4, [[1, 1]])
    assert (database.listener("billing").last_processed_id, database.listener("billing").gaps) == (
        4,
        [],
    )


async def test_a_slow_listener_holds_nobody_else_up(
    outbox: Outbox, producer: Producer, consuming: Consuming
) -> None:
    hurry = anyio.Event()

    @outbox.listener("slow", on="order.*", order="total")
    async def wait(event: Event[Any], session: AsyncSession) -> None:
        await hurry.wait()

    @outbox.listener("quick", on="order.*", order="total")
    async def go(event: Event[Any], session: AsyncSession) -> None: ...

    async with consuming(outbox) as running:
        producer.add(1, 2, 3)
        await running.done("quick", 3)
        hurry.set()
        await running.done("slow", 3)


async def test_two_consumers_share_the_listeners_and_handle_each_event_once(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    for name in ("one", "two", "three", "four"):

        @outbox.listener(name, on="order.*")
        async def note(event: Event[Any], session: AsyncSession, name: str = name) -> None:
            values = {"name": name, "n": event.payload["n"]}
            await session.execute(text("INSERT INTO effects VALUES (:name, :n)"), values)

    async with (
        consuming(outbox, listeners=["one", "two"]) as first,
        consuming(outbox) as second,
    ):
        await second.recorder.seen(LeaseClaimed, times=2)
        for n in range(20):
            producer.add(n)
        await first.done("one", 20)
        await first.done("two", 20)
        await second.done("three", 20)
        await second.done("four", 20)

    for name in ("one", "two", "three", "four"):
        assert database.effects(name) == list(range(20))
    assert {each.listener for each in second.recorder.of(LeaseClaimed)} == {"three", "four"}
