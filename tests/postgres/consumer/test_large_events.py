"""Events that are large when they are read: a read has a budget of bytes, and an event a limit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal, get_args

import pytest

from sa_outbox import Event, Outbox
from sa_outbox.consumer.connection.connections import Connection, Connections, Query
from sa_outbox.observe import BatchRead, DatabaseAway, RangeTaken

from .conftest import LATER, Consuming, Database, Producer, Running

pytestmark = [pytest.mark.anyio, pytest.mark.woken_by("poll")]

Order = Literal["total", "key", "none"]
ORDERS = pytest.mark.parametrize("order", get_args(Order))
FIVE_MEGABYTES, TOO_LARGE = 16_000, 250_000


def numbers(count: int) -> str:
    """SQL: 311 bytes of text for each of them, and next to none on disk."""
    return f"(SELECT jsonb_agg(CAST('1e308' AS numeric)) FROM generate_series(1, {count}))"


class Handler:
    def __init__(self) -> None:
        self.sizes: list[int] = []

    async def __call__(self, event: Event[Any]) -> None:
        self.sizes.append(len(event.payload))


def most_at_once(running: Running) -> int:
    reads = [each.events for each in running.recorder.of(BatchRead)]
    ranges = [each.events for each in running.recorder.of(RangeTaken)]
    return max(reads + ranges)


@pytest.mark.matrix
@ORDERS
async def test_a_read_ends_when_it_has_enough_bytes(
    order: Order, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    handler = Handler()
    outbox.listener("billing", on="order.*", order=order)(handler)
    for _ in range(6):
        database.write_raw(payload=numbers(FIVE_MEGABYTES))

    async with consuming(outbox) as running:
        await running.done("billing", 6)
        assert most_at_once(running) <= 4
        assert running.recorder.of(DatabaseAway) == []
        running.recorder.forget()
        for n in range(20):
            producer.add(n)
        await running.done("billing", 20)

    assert handler.sizes == [FIVE_MEGABYTES] * 6 + [1] * 20
    assert database.dead_letters("billing") == []


@ORDERS
async def test_a_read_asks_for_hardly_more_events_than_have_fit_into_the_one_before(
    order: Order,
    outbox: Outbox,
    database: Database,
    consuming: Consuming,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The server builds the text of each event that it is asked for, to know its size. Asked for a
    whole batch each time, it took minutes for some dozens of 50 MB."""
    asked: list[int] = []
    rows = Connection.rows

    async def noted(self: Connection, query: Query, /, **values: Any) -> list[Any]:
        if "so_far" in query.sql and "limit" in values:
            asked.append(values["limit"])
        return await rows(self, query, **values)

    monkeypatch.setattr(Connection, "rows", noted)
    handler = Handler()
    outbox.listener("billing", on="order.*", order=order)(handler)
    for _ in range(10):
        database.write_raw(payload=numbers(FIVE_MEGABYTES))

    async with consuming(outbox) as running:
        await running.done("billing", 10)

    assert len(asked) >= 3
    assert max(asked[1:]) <= 2 * 4
    assert handler.sizes == [FIVE_MEGABYTES] * 10


@pytest.mark.matrix
@ORDERS
async def test_deliveries_that_are_due_have_the_same_budget(
    order: Order, outbox: Outbox, database: Database, consuming: Consuming
) -> None:
    handler = Handler()
    outbox.listener("billing", on="order.*", order=order)(handler)
    for _ in range(5):
        later = "clock_timestamp() + interval '1 hour'"
        database.write_raw(payload=numbers(FIVE_MEGABYTES), run_at=later)
    async with consuming(outbox) as running:
        await running.consumer.drain()
    assert len(database.deliveries("billing")) == 5

    database.rows("UPDATE outbox_deliveries SET due_at = clock_timestamp()")
    async with consuming(outbox) as running:
        await running.done("billing", 5)
        if order == "none":
            assert most_at_once(running) <= 4

    assert handler.sizes == [FIVE_MEGABYTES] * 5
    assert database.deliveries("billing") == []


@pytest.mark.matrix
@ORDERS
async def test_one_that_is_too_large_is_a_dead_letter_that_has_all_of_it(
    order: Order, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    handler = Handler()
    outbox.listener("billing", on="order.*", order=order, retry=LATER)(handler)
    producer.add(0, key="a")
    database.write_raw(payload=numbers(TOO_LARGE), key="'a'")
    producer.add(1, 2, key="a")

    async with consuming(outbox) as running:
        await running.done("billing", 3)
        await running.dead("billing")
        assert running.recorder.of(DatabaseAway) == []

    assert handler.sizes == [1, 1, 1]
    (dead,) = database.rows(
        "SELECT position, reason, key, errors, jsonb_array_length(payload) AS length"
        " FROM outbox_dead_letters"
    )
    assert (dead.position, dead.reason, dead.key) == (2, "refused", "a")
    assert dead.length == TOO_LARGE
    assert "77,750,015 bytes" in dead.errors[-1]["message"]


@ORDERS
async def test_an_event_for_which_memory_does_not_suffice_is_found_among_the_others(
    order: Order,
    outbox: Outbox,
    producer: Producer,
    database: Database,
    consuming: Consuming,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Halved until one is left: that one is a dead letter, and nobody is killed."""
    got: list[int] = []

    @outbox.listener("billing", on="order.*", order=order)
    async def charge(event: Event[Any]) -> None:
        got.append(event.payload["n"])

    reads: list[int] = []

    def short_of_memory(rows: Callable[..., Awaitable[list[Any]]]) -> Any:
        async def read(self: object, query: Query, /, **values: Any) -> list[Any]:
            found = await rows(self, query, **values)
            if any('{"n": 13}' in row.values() for row in found):
                reads.append(len(found))
                raise MemoryError
            return found

        return read

    for where in (Connection, Connections):
        monkeypatch.setattr(where, "rows", short_of_memory(where.rows))
    for n in range(20):
        producer.add(n, key=f"key {n}")

    async with consuming(outbox) as running:
        await running.done("billing", 19)
        await running.dead("billing")
        assert running.recorder.of(DatabaseAway) == []

    assert sorted(got) == [n for n in range(20) if n != 13]
    (dead,) = database.dead_letters("billing")
    assert (dead.position, dead.reason) == (14, "refused")
    assert max(reads) > 1 >= min(reads)
