"""A whole consumer behind PgBouncer in session mode, set up as docs/consuming.md says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anyio
import pytest
from sqlalchemy import URL
from sqlalchemy.ext.asyncio import AsyncSession

from sa_outbox import Event, Outbox
from sa_outbox.consumer import Drained
from sa_outbox.observe import Listening
from tests.support import PATIENCE
from tests.support.pooler import pooled

from .conftest import QUICK, Database, Producer, make_consumer

pytestmark = [pytest.mark.anyio, pytest.mark.woken_by("notify")]


@pytest.fixture
def pooler(migrated_url: URL) -> Iterator[str]:
    with pooled(
        migrated_url,
        pool_mode="session",
        default_pool_size=20,
        ignore_startup_parameters="idle_in_transaction_session_timeout,extra_float_digits",
    ) as url:
        yield url.render_as_string(hide_password=False)


@pytest.mark.parametrize("order", ["key", "total", "none"])
async def test_it_delivers_retries_and_gives_up_as_without_one(
    order: Any, outbox: Outbox, producer: Producer, database: Database, pooler: str
) -> None:
    @outbox.listener("billing", on="order.*", order=order, retry=QUICK)
    async def charge(event: Event[Any], session: AsyncSession) -> None:
        if event.payload["n"] == 3:
            raise ValueError

    producer.add(*range(20))
    with anyio.fail_after(PATIENCE):
        drained = await make_consumer(outbox, pooler)[0].drain()

    assert drained == Drained(handled=19, retried=2, dead=1)
    assert len(database.dead_letters("billing")) == 1


async def test_it_is_woken_by_notifications(
    outbox: Outbox, producer: Producer, pooler: str
) -> None:
    @outbox.listener("billing", on="order.*")
    async def charge(event: Event[Any]) -> None:
        handled.set()

    handled = anyio.Event()
    consumer, recorder = make_consumer(outbox, pooler)
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            await tasks.start(consumer.run)
            await recorder.seen(Listening)
            producer.add(1)
            await handled.wait()
            consumer.stop()
