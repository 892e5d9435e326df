"""A COMMIT whose answer is lost is neither a failure of the handler nor done twice."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import URL, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.pool import NullPool

from sa_outbox import Event, Outbox
from sa_outbox.consumer import Consumer
from sa_outbox.observe import AttemptFailed
from tests.support.proxy import Proxy
from tests.support.recorder import Recorder

from .conftest import Database, Producer

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("before", [False, True], ids=["after the commit", "before it"])
@pytest.mark.parametrize("order", ["key", "total"])
async def test_a_connection_that_ends_in_a_commit_leaves_each_effect_once(
    order: Any,
    before: bool,
    outbox: Outbox,
    producer: Producer,
    database: Database,
    migrated_url: URL,
) -> None:
    with Proxy(migrated_url) as proxy:
        proxy.open()
        address = migrated_url.set(drivername="postgresql+asyncpg", port=proxy.port)
        engine = create_async_engine(address, poolclass=NullPool)

        cut: set[int] = set()

        @outbox.listener("billing", on="order.*", order=order)
        async def charge(event: Event[Any], session: AsyncSession) -> None:
            n = event.payload["n"]
            if n % 3 == 0 and n not in cut:
                cut.add(n)
                proxy.cut_at_commit(1, before=before)
            await session.execute(text("INSERT INTO effects VALUES ('billing', :n)"), {"n": n})

        producer.add(*range(12), key="k")
        recorder = Recorder()
        await Consumer(outbox, engine, observers=[recorder]).drain()
        await engine.dispose()

    assert cut == {0, 3, 6, 9}
    assert database.effects("billing") == list(range(12))
    assert not [each for each in recorder.observations if isinstance(each, AttemptFailed)]
