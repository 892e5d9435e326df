"""Transactions that drew an id early and commit late: who waits for them, and for how long."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import timedelta
from random import Random
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from sa_outbox import Event, Outbox
from sa_outbox.observe import CaughtUp, HorizonRead
from sa_outbox.policy.order import Order

from .conftest import Consuming, Database, Producer

pytestmark = pytest.mark.anyio


def listen(outbox: Outbox, order: Order, **options: Any) -> list[int]:
    got: list[int] = []

    @outbox.listener("billing", on="order.*", order=order, **options)
    async def charge(event: Event[Any], session: AsyncSession) -> None:
        await session.execute(
            text("INSERT INTO effects VALUES ('billing', :n)"), {"n": event.payload["n"]}
        )
        got.append(event.payload["n"])

    return got


class TestByKey:
    async def test_others_events_come_at_once_and_the_open_one_s_after_its_commit(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        got = listen(outbox, "key")

        async with consuming(outbox) as running:
            with producer.open() as writer:
                writer.add_event("order.placed", {"n": 1})
                writer.flush()
                producer.add(2)
                producer.add(3)
                await running.done("billing", 2)
                assert got == [2, 3]
            await running.done("billing", 3)

        assert got == [2, 3, 1]
        row = database.listener("billing")
        assert (row.last_processed_id, row.gaps) == (3, [])

    async def test_a_hole_that_is_open_is_saved_and_the_next_consumer_watches_it(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        got = listen(outbox, "key")

        with producer.open() as writer:
            writer.add_event("order.placed", {"n": 1})
            writer.flush()
            producer.add(2)
            async with consuming(outbox) as running:
                await running.done("billing")
            saved = database.listener("billing")
            async with consuming(outbox) as running:
                writer.commit()
                await running.done("billing")

        assert (saved.last_processed_id, saved.gaps) == (2, [[1, 1]])
        assert got == [2, 1]

    async def test_a_hole_that_was_rolled_back_is_forgotten(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        listen(outbox, "key")

        async with consuming(outbox) as running:
            await running.listening()
            with producer.open() as writer:
                writer.add_event("order.placed", {"n": 1})
                writer.flush()
                producer.add(2)
                await running.done("billing")
                assert database.listener("billing").gaps == [[1, 1]]
                writer.rollback()
            await running.recorder.seen(HorizonRead, final=2, within=3)
            producer.add(3)
            await running.done("billing", 2)

        assert database.listener("billing").gaps == []

    async def test_a_hole_of_another_type_is_passed_by_in_the_end(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        got = listen(outbox, "key")

        async with consuming(outbox) as running:
            with producer.open() as writer:
                writer.add_event("invoice.sent", {"n": 1})
                writer.flush()
                producer.add(2)
                await running.done("billing")
            await running.recorder.seen(HorizonRead, final=2, within=3)
            await running.consumer.drain()

        assert got == [2]
        assert database.listener("billing").gaps == []

    async def test_two_events_of_a_key_on_both_sides_of_the_cursor_keep_their_order(
        self, outbox: Outbox, producer: Producer, consuming: Consuming
    ) -> None:
        """The first is late in a gap, the second new above the cursor, and one commit shows both:
        a read of one of them without the other would turn them around."""
        got = listen(outbox, "key", concurrency=4)

        async with consuming(outbox) as running:
            for n in range(0, 30, 3):
                with producer.open() as writer:
                    writer.add_event("order.placed", {"n": n}, key="a")
                    writer.flush()
                    producer.add(n + 1, key="b")
                    await running.done("billing", n + 1)
                    writer.add_event("order.placed", {"n": n + 2}, key="a")
                    writer.flush()
                await running.done("billing", n + 3)

        of_a = [n for n in got if n % 3 != 1]
        assert of_a == sorted(of_a)

    async def test_many_writers_that_commit_in_any_order_lose_nothing(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        listen(outbox, "key", concurrency=3, batch_size=5)
        random = Random(7)
        numbers = iter(range(40))
        committed: list[int] = []

        async with consuming(outbox) as running:
            for _ in range(4):
                with ExitStack() as stack:
                    writers = [stack.enter_context(producer.open()) for _ in range(4)]
                    for writer in writers * 2:
                        n = next(numbers)
                        writer.add_event("order.placed", {"n": n}, key=f"key {n % 4}")
                        writer.flush()
                        writer.info.setdefault("numbers", []).append(n)
                    random.shuffle(writers)
                    for writer in writers:
                        if random.random() < 0.3:
                            writer.rollback()
                        else:
                            writer.commit()
                            committed += writer.info["numbers"]
                            await running.done("billing", len(committed))

        assert database.effects("billing") == sorted(committed)


class TestInTotalOrder:
    async def test_it_waits_for_the_open_event_and_keeps_the_order(
        self, outbox: Outbox, producer: Producer, consuming: Consuming
    ) -> None:
        got = listen(outbox, "total", gap_wait=None)

        async with consuming(outbox) as running:
            with producer.open() as writer:
                writer.add_event("order.placed", {"n": 1})
                writer.flush()
                producer.add(2)
                await running.recorder.seen(HorizonRead, ceiling=2, times=3)
                assert got == []
            await running.done("billing", 2)

        assert got == [1, 2]

    async def test_it_goes_on_after_gap_wait_and_the_late_event_comes_when_it_commits(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        got = listen(outbox, "total", gap_wait=timedelta(milliseconds=200))

        async with consuming(outbox) as running:
            with producer.open() as writer:
                writer.add_event("order.placed", {"n": 1})
                writer.flush()
                producer.add(2)
                await running.done("billing")
                assert got == [2]
                assert database.listener("billing").gaps == [[1, 1]]
            await running.done("billing", 2)

        assert got == [2, 1]

    async def test_events_before_the_open_one_do_not_wait(
        self, outbox: Outbox, producer: Producer, consuming: Consuming
    ) -> None:
        got = listen(outbox, "total", gap_wait=None)

        async with consuming(outbox) as running:
            producer.add(1)
            with producer.open() as writer:
                writer.add_event("order.placed", {"n": 2})
                writer.flush()
                producer.add(3)
                await running.done("billing")
                assert got == [1]
            await running.done("billing", 3)

        assert got == [1, 2, 3]

    async def test_a_transaction_that_writes_no_event_holds_nobody_up(
        self, outbox: Outbox, producer: Producer, database: Database, consuming: Consuming
    ) -> None:
        got = listen(outbox, "total", gap_wait=None)

        async with consuming(outbox) as running:
            with database.engine.begin() as elsewhere:
                elsewhere.execute(text("INSERT INTO effects VALUES ('elsewhere', 1)"))
                producer.add(1)
                producer.add(2)
                await running.done("billing", 2)

        assert got == [1, 2]

    async def test_ids_that_follow_each_other_do_not_wait_for_a_writer_above_them(
        self, outbox: Outbox, producer: Producer, consuming: Consuming
    ) -> None:
        """It may draw an id at any time; those that are visible without a hole are final."""
        got = listen(outbox, "total", gap_wait=None)

        async with consuming(outbox) as running:
            producer.add(1)
            with producer.open() as writer:
                writer.execute(text("LOCK TABLE outbox IN ROW EXCLUSIVE MODE"))
                producer.add(2)
                producer.add(3)
                await running.done("billing", 3)

        assert got == [1, 2, 3]

    async def test_a_rollback_lets_it_go_on_without_a_notification(
        self, outbox: Outbox, producer: Producer, consuming: Consuming
    ) -> None:
        got = listen(outbox, "total", gap_wait=None)

        async with consuming(outbox) as running:
            await running.listening()
            with producer.open() as writer:
                writer.add_event("order.placed", {"n": 1})
                writer.flush()
                producer.add(2)
                await running.recorder.seen(HorizonRead, ceiling=2, times=3)
                writer.rollback()
                await running.recorder.seen(CaughtUp, position=2, within=1)

        assert got == [2]
