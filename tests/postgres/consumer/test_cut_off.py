"""A consumer that is cut off is taken for dead; when it is back, it says that it lived."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import anyio
import pytest
from sqlalchemy import URL
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from sa_outbox import Event, Outbox
from sa_outbox.consumer import Consumer
from sa_outbox.observe import DatabaseBack, DeadLettered, Place
from tests.support import comes_true
from tests.support.proxy import Proxy
from tests.support.recorder import Recorder

from .conftest import Database, Producer, make_consumer

pytestmark = [pytest.mark.anyio, pytest.mark.woken_by("notify")]

LEASE = timedelta(seconds=2.5)
PATIENCE = 90.0
HOLDER = """
SELECT locked_by FROM outbox_listeners WHERE locked_by IS NOT NULL
UNION ALL SELECT locked_by FROM outbox_ranges WHERE locked_by IS NOT NULL
"""


@dataclass
class Remote:
    """A consumer behind a network that fails when it is told to."""

    consumer: Consumer
    recorder: Recorder
    network: Proxy

    async def is_back(self, network_was_cut: int) -> None:
        """It has noticed that the database answers again."""
        await comes_true(lambda: self.times_back() > network_was_cut, within=PATIENCE)

    def times_back(self) -> int:
        return sum(each.where == Place("leases") for each in self.recorder.of(DatabaseBack))


@asynccontextmanager
async def remote(outbox: Outbox, url: URL) -> AsyncIterator[Remote]:
    with Proxy(url) as network:
        network.open()
        address = url.set(drivername="postgresql+asyncpg", port=network.port)
        engine = create_async_engine(address, poolclass=NullPool)
        consumer, recorder = make_consumer(
            outbox,
            engine,
            lease_duration=LEASE,
            max_crashes=2,
            poll_interval=timedelta(milliseconds=200),
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(consumer.run)
            yield Remote(consumer, recorder, network)
            consumer.stop()
        await engine.dispose()


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize("order", ["key", "none"])
async def test_two_consumers_whose_networks_fail_in_turn_condemn_nobody(
    order: Any, outbox: Outbox, producer: Producer, database: Database, migrated_url: URL
) -> None:
    begun, calm = 0, anyio.Event()

    @outbox.listener("billing", on="order.*", order=order)
    async def charge(event: Event[Any]) -> None:
        nonlocal begun
        begun += 1
        await calm.wait()

    async with AsyncExitStack() as stack:
        both = [await stack.enter_async_context(remote(outbox, migrated_url)) for _ in range(2)]
        producer.add(1)
        for times in range(1, 5):  # at full speed, among few, and twice alone
            await comes_true(lambda: begun >= times, within=PATIENCE)  # noqa: B023 - called at once
            holder = database.value(HOLDER)
            [cut] = [each for each in both if each.consumer.owner == holder]
            before = cut.times_back()
            cut.network.shut()
            # The handler is begun again by the other one, which takes the first one for dead.
            # Asked of observers: questions to the database would block the event loop, and who
            # was not awake has no alibi.
            await comes_true(lambda: begun > times or told_of_dead(both), within=PATIENCE)  # noqa: B023 - called at once
            assert not condemned(database)
            cut.network.open()
            await cut.is_back(before)
        calm.set()
        await comes_true(lambda: is_done(database), within=PATIENCE)

    assert not condemned(database)


def told_of_dead(consumers: list[Remote]) -> bool:
    return any(each.recorder.of(DeadLettered) for each in consumers)


def condemned(database: Database) -> list[Any]:
    return database.dead_letters("billing")


def is_done(database: Database) -> bool:
    row = database.listener("billing")
    ranges = database.value("SELECT count(*) FROM outbox_ranges")
    return (row.last_processed_id, ranges, row.crashes, row.suspects) == (1, 0, 0, {})
