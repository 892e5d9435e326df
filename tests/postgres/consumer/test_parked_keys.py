"""order="key": one failing event, its key behind it, and everything else that flows."""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta
from time import monotonic
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from sa_outbox import Event, Outbox, RetryPolicy
from sa_outbox.consumer.connection.connections import Connections, Query
from sa_outbox.consumer.loop.due import KEYS_SHARE
from tests.support import comes_true

from .conftest import LATER, QUICK, Consuming, Database, Producer

pytestmark = [pytest.mark.anyio, pytest.mark.matrix]

DUE = "UPDATE outbox_deliveries SET due_at = clock_timestamp() WHERE state = 'parked'"


class Handler:
    """Fails for *bad* numbers until it is fixed; notes per key what was done."""

    def __init__(self, *bad: int) -> None:
        self.bad = set(bad)
        self.done: defaultdict[str | None, list[int]] = defaultdict(list)
        self.attempts: list[int] = []

    async def __call__(self, event: Event[Any]) -> None:
        n = event.payload["n"]
        self.attempts.append(n)
        if n in self.bad:
            raise ValueError(f"no {n}")
        self.done[event.key].append(n)


async def test_other_keys_flow_while_one_waits(
    outbox: Outbox, producer: Producer, consuming: Consuming
) -> None:
    handler = Handler(1)
    outbox.listener("billing", on="order.*", retry=LATER)(handler)

    async with consuming(outbox) as running:
        producer.add(1, key="bad")
        await running.settled("billing", outcome="retry")
        producer.add(2, 3, key="good")
        producer.add(4, key="better")
        await running.done("billing", 3)

    assert handler.done == {"good": [2, 3], "better": [4]}


async def test_later_events_of_a_key_stay_behind_its_parked_delivery(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    handler = Handler(1)
    outbox.listener("billing", on="order.*", retry=LATER)(handler)

    async with consuming(outbox) as running:
        producer.add(1, 2, key="bad")  # read with it
        await running.settled("billing", outcome="retry")
        producer.add(3, key="bad")  # committed while it is parked
        producer.add(4, key="good")
        await running.done("billing")

    assert handler.attempts == [1, 4]
    assert [(row.position, row.state, row.attempts) for row in database.deliveries("billing")] == [
        (1, "parked", 1),
        (2, "behind", 0),
        (3, "behind", 0),
    ]
    assert database.listener("billing").last_processed_id == 4


async def test_they_follow_in_order_when_it_is_done(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    handler = Handler(1)
    outbox.listener("billing", on="order.*", retry=LATER)(handler)

    async with consuming(outbox) as running:
        producer.add(1, 2, key="bad")
        await running.settled("billing", outcome="retry")
        producer.add(3, key="bad")
        producer.add(4, key="good")
        await running.done("billing")
    handler.bad.clear()
    database.rows(DUE)
    producer.add(5, key="bad")
    async with consuming(outbox) as running:
        await running.done("billing", 4)

    assert handler.done["bad"] == [1, 2, 3, 5]
    assert database.deliveries("billing") == []


async def test_they_follow_in_order_after_the_dead_letter(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    handler = Handler(1)
    outbox.listener("billing", on="order.*", retry=QUICK)(handler)

    async with consuming(outbox) as running:
        producer.add(1, 2, key="bad")
        producer.add(3, key="bad")
        await running.dead("billing")
        producer.add(4, key="bad")
        await running.done("billing", 3)

    assert handler.attempts == [1, 1, 1, 2, 3, 4]
    assert len(database.dead_letters("billing")) == 1
    assert database.deliveries("billing") == []


async def test_one_behind_that_fails_has_its_own_attempts(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    handler = Handler(1, 3)
    outbox.listener("billing", on="order.*", retry=QUICK)(handler)
    producer.add(1, 2, 3, 4, key="bad")

    async with consuming(outbox) as running:
        await running.dead("billing", 2)
        await running.done("billing", 2)

    assert handler.attempts == [1, 1, 1, 2, 3, 3, 3, 4]
    assert [(each.position, each.attempts) for each in database.dead_letters("billing")] == [
        (1, 3),
        (3, 3),
    ]


@pytest.mark.parametrize("batch_size", [1, 2, 3, 10])
async def test_a_long_queue_behind_a_parked_delivery_keeps_its_order(
    batch_size: int, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    handler = Handler(0)
    outbox.listener("billing", on="order.*", retry=LATER, batch_size=batch_size)(handler)

    async with consuming(outbox) as running:
        for n in range(20):
            producer.add(n, key="bad")
        producer.add(100, key="good")
        await running.done("billing")
        handler.bad.clear()
        database.rows(DUE)
        producer.add(101, key="good")  # so that it looks
    async with consuming(outbox) as running:
        for n in range(20, 30):
            producer.add(n, key="bad")
        await running.consumer.drain()

    assert handler.done["bad"] == list(range(30))


async def test_several_keys_fail_and_recover_beside_each_other(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    policy = RetryPolicy(attempts=3, base=timedelta(milliseconds=5))
    handler = Handler(*range(0, 60, 7))
    outbox.listener("billing", on="order.*", retry=policy, concurrency=4, batch_size=8)(handler)

    async with consuming(outbox) as running:
        for n in range(60):
            producer.add(n, key=f"key {n % 5}")
        await running.dead("billing", 9)
        await running.done("billing", 51)

    for key in range(5):
        assert handler.done[f"key {key}"] == [n for n in range(key, 60, 5) if n % 7]
    assert sorted(each.position for each in database.dead_letters("billing")) == list(
        range(1, 61, 7)
    )
    assert database.deliveries("billing") == []


async def test_parked_deliveries_with_a_session_have_their_effect_once_and_in_order(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    attempts: list[int] = []

    @outbox.listener("billing", on="order.*", retry=QUICK)
    async def charge(event: Event[Any], session: AsyncSession) -> None:
        n = event.payload["n"]
        attempts.append(n)
        await session.execute(text("INSERT INTO effects VALUES ('billing', :n)"), {"n": n})
        if attempts.count(n) < 3:
            raise ValueError("not yet")

    producer.add(1, 2, 3, key="a")

    async with consuming(outbox) as running:
        await running.done("billing", 3)

    assert attempts == [1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert database.effects("billing") == [1, 2, 3]
    assert database.deliveries("billing") == []


async def test_attempts_and_errors_survive_a_restart(
    outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
) -> None:
    handler = Handler(1)
    outbox.listener("billing", on="order.*", retry=LATER)(handler)
    producer.add(1, key="bad")

    async with consuming(outbox) as running:
        await running.settled("billing", outcome="retry")
    database.rows(DUE)
    async with consuming(outbox) as running:
        await running.dead("billing")

    [dead] = database.dead_letters("billing")
    assert (dead.attempts, [each["attempt"] for each in dead.errors]) == (2, [1, 2])


@pytest.mark.woken_by("notify")  # a hundred polls would take five seconds
async def test_a_failure_does_not_read_the_keys_of_all_that_is_parked(
    outbox: Outbox,
    producer: Producer,
    database: Database,
    consuming: Consuming,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With 20,000 parked, 300 failures took 14 s instead of one."""
    parked, failing = 5_000, 100
    handler = Handler(*range(parked, parked + failing))
    outbox.listener("billing", on="order.*", retry=LATER, start="now")(handler)
    with producer.open() as session:
        for n in range(parked):
            session.add_event("order.placed", {"n": n}, key=str(n))
    async with consuming(outbox):
        pass  # the listener is registered behind them
    database.rows(
        "INSERT INTO outbox_deliveries (listener, position, event_id, event_type, key, state,"
        " due_at, attempts) SELECT 'billing', id, event_id, event_type, key, 'parked',"
        " now() + interval '1 hour', 1 FROM outbox"
    )
    seconds: list[float] = []
    rows = Connections.rows

    async def counted(self: Connections, query: Query, /, **values: Any) -> list[Any]:
        began = monotonic()
        try:
            return await rows(self, query, **values)
        finally:
            if "DISTINCT key" in query.sql:
                seconds.append(monotonic() - began)

    monkeypatch.setattr(Connections, "rows", counted)

    began = monotonic()
    async with consuming(outbox) as running:
        for n in range(parked, parked + failing):
            producer.add(n, key=str(n))
            await running.settled("billing", outcome="retry", times=n - parked + 1)
        producer.add(-1, key=str(parked))  # behind one that has failed since the keys were read
        producer.add(-2, key="good")
        await running.done("billing")

    assert len(seconds) > 1
    assert sum(seconds) < 2 * max(seconds) + (monotonic() - began) / KEYS_SHARE
    assert handler.done == {"good": [-2]}


@pytest.mark.woken_by("notify")
async def test_a_delivery_that_waits_does_not_keep_its_loop_busy(
    outbox: Outbox, producer: Producer, consuming: Consuming
) -> None:
    """When the keys were read too soon after each other, they are read once more, and not again
    and again until the delivery is due."""
    outbox.listener("billing", on="order.*", retry=LATER)(Handler(1))
    producer.add(1, key="a")

    async with consuming(outbox) as running:
        await running.settled("billing", outcome="retry")
        services = running.consumer._services
        assert services is not None
        [loop] = services.workload.holder.loops.values()

        def is_resting() -> bool:
            next_at = loop.source.next_at(has_room=True)
            rests = next_at is not None and next_at > monotonic() + 1
            return rests and bool(loop.source.due.occupied)

        await comes_true(is_resting)
