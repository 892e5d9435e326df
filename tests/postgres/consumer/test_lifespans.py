"""Lifespans around a real consumer: before its first lease, after its last."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import anyio
import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from sa_outbox import Event, Outbox
from sa_outbox.consumer import Consumer
from sa_outbox.errors import LifespanError, SchemaError
from sa_outbox.observe import LeaseClaimed, LeaseReleased
from tests.support import PATIENCE
from tests.support.recorder import Recorder

from .conftest import Consuming, Database, Producer, make_consumer

pytestmark = [pytest.mark.anyio, pytest.mark.woken_by("notify")]


class Story:
    """What happened, in its order: leases from the recorder, the rest said by the program."""

    def __init__(self, outbox: Outbox) -> None:
        self.said: list[str] = []

        @outbox.lifespan
        async def client() -> AsyncIterator[None]:
            self.said.append("begins")
            yield
            self.said.append("ends")

        @outbox.listener("billing", on="*")
        async def bill(event: Event) -> None:
            self.said.append("handles")

    def __call__(self, observation: object) -> None:
        if isinstance(observation, (LeaseClaimed, LeaseReleased)):
            self.said.append("claims" if isinstance(observation, LeaseClaimed) else "releases")


IN_ORDER = ["begins", "claims", "handles", "releases", "ends"]


async def test_a_run_is_inside_its_lifespan(
    outbox: Outbox, producer: Producer, consuming: Consuming
) -> None:
    story = Story(outbox)
    producer.add(1)

    async with consuming(outbox) as running:
        running.consumer.observers.add(story)
        await running.done("billing")

    # The observer may have come after the claim.
    assert [each for each in story.said if each != "claims"] == [
        each for each in IN_ORDER if each != "claims"
    ]


async def test_a_drain_is_inside_its_lifespan(
    outbox: Outbox, producer: Producer, async_engine: AsyncEngine
) -> None:
    story = Story(outbox)
    producer.add(1)

    await Consumer(outbox, async_engine, observers=[story]).drain()

    assert story.said == IN_ORDER


async def test_a_start_that_raises_takes_no_lease(
    outbox: Outbox, producer: Producer, async_engine: AsyncEngine, database: Database
) -> None:
    story = Story(outbox)

    @outbox.lifespan
    async def refused() -> AsyncIterator[None]:
        raise ConnectionError("no such host")
        yield

    producer.add(1)
    for begin in ("run", "drain"):
        consumer = Consumer(outbox, async_engine, observers=[story])
        with pytest.raises(LifespanError, match="refused"):
            await getattr(consumer, begin)()

    assert story.said == ["begins", "ends"] * 2
    assert database.listener("billing").lease_expires_at is None


async def test_an_end_that_hangs_is_bounded_by_the_grace_period(
    outbox: Outbox, producer: Producer, async_engine: AsyncEngine, database: Database
) -> None:
    story = Story(outbox)

    @outbox.lifespan
    async def hangs() -> AsyncIterator[None]:
        yield
        assert database.listener("billing").lease_expires_at is None
        await anyio.sleep_forever()

    producer.add(1)
    consumer, _ = make_consumer(outbox, async_engine, grace_period=timedelta(seconds=0.1))
    with anyio.fail_after(PATIENCE), pytest.raises(LifespanError, match="took too long"):
        await consumer.drain()

    assert story.said == ["begins", "handles", "ends"]


async def test_wrong_tables_are_found_before_anything_is_set_up(
    outbox: Outbox, async_engine: AsyncEngine, database: Database
) -> None:
    elsewhere = Outbox(prefix="nowhere")
    story = Story(elsewhere)

    with pytest.raises(SchemaError):
        await Consumer(elsewhere, async_engine).run()

    assert story.said == []


async def test_other_endpoints_do_not_set_up_anything_again(
    outbox: Outbox, async_engine: AsyncEngine, database: Database
) -> None:
    story = Story(outbox)
    outbox.webhooks()
    consumer, recorder = make_consumer(outbox, async_engine)
    async with anyio.create_task_group() as tasks:
        await tasks.start(consumer.run)
        assert isinstance(recorder, Recorder)
        await recorder.seen(LeaseClaimed, times=1)
        consumer._restarts.serve_again()
        await recorder.seen(LeaseClaimed, times=2)
        consumer.stop()

    assert story.said == ["begins", "ends"]
