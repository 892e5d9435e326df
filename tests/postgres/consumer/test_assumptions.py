"""What the reading stands on: whoever holds it up is named, whatever breaks it ends the run."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from sa_outbox import Event, Outbox
from sa_outbox.consumer.services import horizon_reader
from sa_outbox.errors import SchemaError
from sa_outbox.observe import HorizonHeld
from sa_outbox.policy.order import Order

from .conftest import Consuming, Database, Producer, make_consumer

pytestmark = [pytest.mark.anyio, pytest.mark.woken_by("notify")]


def listen(outbox: Outbox, order: Order, **options: Any) -> list[int]:
    got: list[int] = []

    @outbox.listener("billing", on="order.*", order=order, **options)
    async def charge(event: Event[Any], session: AsyncSession) -> None:
        await session.execute(
            text("INSERT INTO effects VALUES ('billing', :n)"), {"n": event.payload["n"]}
        )
        got.append(event.payload["n"])

    return got


async def test_whoever_holds_the_horizon_for_long_is_named(
    outbox: Outbox,
    producer: Producer,
    consuming: Consuming,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(horizon_reader, "HELD_AFTER_SECONDS", 0.1)
    listen(outbox, "total", gap_wait=None)

    async with consuming(outbox) as running:
        with producer.open() as writer:
            writer.execute(text("SET LOCAL application_name = 'slow import'"))
            pid = writer.execute(text("SELECT pg_backend_pid()")).scalar_one()
            writer.add_event("order.placed", {"n": 1})
            writer.flush()
            producer.add(2)
            held = await running.recorder.seen(HorizonHeld)
        await running.done("billing", 2)

    assert (held[0].pid, held[0].application_name) == (pid, "slow import")
    assert held[0].seconds >= 0.1


class TestAssumptions:
    async def test_a_sequence_with_a_cache_is_refused_at_the_start(
        self, outbox: Outbox, database: Database, async_engine: AsyncEngine
    ) -> None:
        listen(outbox, "key")
        consumer, _ = make_consumer(outbox, async_engine)

        database.rows("ALTER SEQUENCE outbox_id_seq CACHE 10")
        try:
            with pytest.raises(SchemaError, match="CACHE"):
                await consumer.run()
        finally:
            database.rows("ALTER SEQUENCE outbox_id_seq CACHE 1")

        assert database.rows("SELECT FROM outbox_listeners") == []

    async def test_a_sequence_that_gets_a_cache_ends_the_run(
        self, outbox: Outbox, database: Database, consuming: Consuming
    ) -> None:
        listen(outbox, "key")

        async def run_until_it_ends() -> None:
            async with consuming(outbox, verify_interval=timedelta(milliseconds=50)) as running:
                database.rows("ALTER SEQUENCE outbox_id_seq CACHE 10")
                await running.stopped.wait()

        try:
            with pytest.raises(SchemaError, match="CACHE"):
                await run_until_it_ends()
        finally:
            database.rows("ALTER SEQUENCE outbox_id_seq CACHE 1")

        assert database.listener("billing").locked_by is None
