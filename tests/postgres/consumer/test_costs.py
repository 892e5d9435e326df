"""What delivering sends to the server: how many statements and commits, counted, not timed.

A batch costs one read and one write of the cursor, or two, however many events it has. An event by
itself costs nothing, except in a handler's own transaction, where it costs a savepoint.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import asyncpg
import pytest
from sqlalchemy import Engine, event, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from sa_outbox import Event, Outbox
from sa_outbox.consumer.transaction import group

from .conftest import Consuming, Producer

pytestmark = pytest.mark.anyio

HOUR = timedelta(hours=1)
BY_ITSELF: dict[str, Any] = {
    "poll_interval": HOUR,
    "poll_interval_without_notify": HOUR,
    "probe_interval": HOUR,
    "verify_interval": HOUR,
    "maintenance_interval": HOUR,
    "lease_duration": 3 * HOUR,
}
"""Nothing but a drain makes the consumer look."""
BATCH, MANY = 500, 3000
OFFERED = 32
"""An idle listener is offered the first few before the horizon is known."""
ONCE_PER_DRAIN = 12
"""Statements that are about the drain and the horizon, not about events or batches, at most."""
KINDS = {
    "SELECT e.id, e.event_id": "read",
    'UPDATE "public"."outbox_listeners" SET last_processed_id': "cursor",
    "WITH moved AS": "claim",
    'DELETE FROM "public"."outbox_ranges"': "settle range",
    "BEGIN": "begin",
    "COMMIT": "commit",
    "SAVEPOINT": "savepoint",
    "RELEASE SAVEPOINT sa_savepoint_1; SAVEPOINT": "next savepoint",
    "RELEASE SAVEPOINT": "release",
    "SELECT 'the handler'": "handler",
    "INSERT": "insert",
    "UPDATE": "update",
    "DELETE": "delete",
}
"""By how a statement begins; the longest beginning counts."""


class Sent:
    """Every statement that this process sends through asyncpg, ours or SQLAlchemy's."""

    def __init__(self) -> None:
        self.all: list[str] = []
        self.read: list[int] = []
        """How many rows each read of the log returned."""

    def note(self, sql: str) -> str:
        statement = " ".join(sql.split())
        begins = [each for each in KINDS if statement.startswith(each)]
        kind = KINDS[max(begins, key=len)] if begins else "other"
        self.all.append(kind)
        return kind

    def counts(self) -> Counter[str]:
        return Counter(self.all)

    def clear(self) -> None:
        self.all.clear()
        self.read.clear()

    @property
    def full_reads(self) -> int:
        return sum(map(bool, self.read))


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch, async_engine: AsyncEngine) -> Iterator[Sent]:
    sent = Sent()

    def count(name: str) -> None:
        original = getattr(asyncpg.Connection, name)

        async def counting(connection: Any, sql: str, *arguments: Any, **options: Any) -> Any:
            kind = sent.note(sql)
            found = await original(connection, sql, *arguments, **options)
            if kind == "read":
                sent.read.append(len(found))
            return found

        monkeypatch.setattr(asyncpg.Connection, name, counting)

    for name in ("execute", "executemany", "fetch", "fetchval", "fetchrow"):
        count(name)

    def statement(_connection: Any, _cursor: Any, sql: str, *_: Any) -> None:
        sent.note(sql)

    engine = async_engine.sync_engine  # its statements are prepared ones, which are not seen above
    event.listen(engine, "before_cursor_execute", statement)
    yield sent
    event.remove(engine, "before_cursor_execute", statement)


async def delivered(
    outbox: Outbox, count: int, engine: Engine, consuming: Consuming, sent: Sent
) -> Counter[str]:
    """What a running consumer sends to deliver *count* events that are committed at once."""
    async with consuming(outbox, **BY_ITSELF) as running:
        await running.consumer.drain()
        Producer(outbox, engine).add(*range(count))
        sent.clear()
        await running.consumer.drain()
        return sent.counts()


def declare(**options: Any) -> tuple[Outbox, list[int]]:
    outbox, got = Outbox(notify="off"), []

    @outbox.listener("billing", on="order.*", **options)
    async def handler(event: Event[Any]) -> None:
        got.append(event.payload["n"])

    return outbox, got


def declare_with_session(**options: Any) -> tuple[Outbox, list[int]]:
    outbox, got = Outbox(notify="off"), []

    @outbox.listener("billing", on="order.*", **options)
    async def handler(event: Event[Any], session: AsyncSession) -> None:
        await session.execute(text("SELECT 'the handler'"))
        got.append(event.payload["n"])

    return outbox, got


@pytest.mark.parametrize("order", ["key", "total"])
async def test_a_batch_is_one_read_and_one_write_and_an_event_is_nothing(
    order: str, engine: Engine, consuming: Consuming, sent: Sent
) -> None:
    outbox, got = declare(order=order, batch_size=BATCH)

    counts = await delivered(outbox, MANY, engine, consuming, sent)

    assert got == list(range(MANY))
    batches = [OFFERED, *[BATCH] * ((MANY - OFFERED) // BATCH), (MANY - OFFERED) % BATCH]
    assert [count for count in sent.read if count] == batches
    assert counts["cursor"] <= 2 * len(batches)  # what is done is settled when half a batch is
    assert counts["read"] - sent.full_reads + counts["other"] <= ONCE_PER_DRAIN
    assert set(counts) == {"read", "cursor", "other"}  # no transaction, no row for an event


@pytest.mark.parametrize("order", ["key", "total"])
async def test_a_single_event_is_one_read_and_one_write(
    order: str, engine: Engine, consuming: Consuming, sent: Sent
) -> None:
    outbox, got = declare(order=order)

    counts = await delivered(outbox, 1, engine, consuming, sent)

    assert got == [0]
    assert (sent.full_reads, counts["cursor"]) == (1, 1)
    assert set(counts) == {"read", "cursor", "other"}


async def test_a_range_of_a_queue_is_claimed_read_and_settled_once_each(
    engine: Engine, consuming: Consuming, sent: Sent
) -> None:
    outbox, got = declare(order="none")

    counts = await delivered(outbox, MANY, engine, consuming, sent)

    assert sorted(got) == list(range(MANY))
    assert counts["claim"] == counts["settle range"]
    assert counts["claim"] <= sent.full_reads <= counts["claim"] + 1  # one was offered unasked
    assert counts["claim"] <= MANY // 100  # ranges grow with the backlog
    assert counts["other"] <= ONCE_PER_DRAIN + counts["claim"]
    assert set(counts) == {"claim", "read", "settle range", "other"}


async def test_a_single_event_of_a_queue_is_one_range(
    engine: Engine, consuming: Consuming, sent: Sent
) -> None:
    outbox, got = declare(order="none")

    counts = await delivered(outbox, 1, engine, consuming, sent)

    assert got == [0]
    assert (counts["claim"], counts["settle range"]) == (1, 1)
    assert 1 <= sent.full_reads <= 2  # it may have been offered unasked, too
    assert set(counts) == {"claim", "read", "settle range", "other"}


async def test_in_a_group_an_event_is_one_savepoint_and_the_group_one_commit(
    engine: Engine, consuming: Consuming, sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group, "MAX_SECONDS", 60)  # on a busy machine, too
    outbox, got = declare_with_session()

    counts = await delivered(outbox, MANY, engine, consuming, sent)

    assert got == list(range(MANY))
    groups = counts["commit"]
    assert counts["begin"] == counts["cursor"] == groups < MANY // 5
    assert counts["handler"] == MANY
    assert counts["savepoint"] == counts["release"] <= groups
    # The first of a group needs none before it: rolled back, the transaction begins again.
    assert counts["savepoint"] + counts["next savepoint"] == MANY - groups
    assert counts["read"] - sent.full_reads + counts["other"] <= ONCE_PER_DRAIN
    beside = {"begin", "commit", "cursor", "handler", "savepoint", "next savepoint", "release"}
    assert set(counts) == beside | {"read", "other"}


async def test_without_groups_an_event_is_begin_the_handler_the_cursor_and_commit(
    engine: Engine, consuming: Consuming, sent: Sent
) -> None:
    outbox, got = declare_with_session(group_commit=False)

    counts = await delivered(outbox, 50, engine, consuming, sent)

    assert got == list(range(50))
    of_an_event = ("begin", "handler", "cursor", "commit")
    assert [counts[kind] for kind in of_an_event] == [50] * 4
    assert set(counts) == {*of_an_event, "read", "other"}
