"""A role that may not consume gets the statements that let it."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import URL

from sa_outbox import Event, Outbox
from sa_outbox.consumer import Consumer
from sa_outbox.errors import SchemaError
from sa_outbox.settings import Notify

from .conftest import Database, Producer

pytestmark = pytest.mark.anyio


@pytest.fixture
def role(database: Database) -> Iterator[str]:
    name = f"consumer_{secrets.token_hex(6)}"  # roles are the server's: other tests see them
    database.rows(f"CREATE ROLE {name} LOGIN PASSWORD 'known'")
    database.rows(f"GRANT SELECT, INSERT ON outbox TO {name}")
    database.rows(f"GRANT SELECT ON outbox_meta TO {name}")
    yield name
    database.rows(f"DROP OWNED BY {name}")
    database.rows(f"DROP ROLE {name}")


async def test_what_it_lacks_is_said_as_grants_that_mend_it(
    role: str, outbox: Outbox, producer: Producer, database: Database, migrated_url: URL
) -> None:
    got = []

    @outbox.listener("billing", on="order.*")
    async def charge(event: Event[Any]) -> None:
        got.append(event.payload["n"])

    producer.add(1)
    consumer = Consumer(outbox, migrated_url.set(username=role, password="known"))
    with pytest.raises(SchemaError) as refused:
        await consumer.drain()
    for grant in refused.value.problems:
        database.rows(grant)
    await consumer.drain()

    assert got == [1]


async def test_what_webhook_endpoints_need_is_asked_for_too(
    role: str, notify: Notify, database: Database, migrated_url: URL
) -> None:
    outbox = Outbox(notify=notify)
    outbox.webhooks()
    consumer = Consumer(outbox, migrated_url.set(username=role, password="known"))

    with pytest.raises(SchemaError) as refused:
        await consumer.drain()

    assert f'GRANT SELECT, UPDATE ON "outbox_endpoints" TO "{role}";' in refused.value.problems
    for grant in refused.value.problems:
        database.rows(grant)
    await consumer.drain()


async def test_what_queues_crons_and_the_audit_need_is_asked_for_too(
    role: str, notify: Notify, database: Database, migrated_url: URL
) -> None:
    """All that is missing at once, and nothing is missing after it was granted."""
    database.rows(f"REVOKE INSERT ON outbox FROM {role}")
    outbox = Outbox(notify=notify, audit="all")
    outbox.cron("* * * * *", "order.wanted", {"n": 1}, time_zone="UTC")
    got = []

    @outbox.listener("orders", on="order.*", order="none")
    async def order(event: Event[Any]) -> None:
        got.append(event.payload["n"])

    consumer = Consumer(outbox, migrated_url.set(username=role, password="known"))
    with pytest.raises(SchemaError) as without_insert:
        await consumer.drain()
    assert f'GRANT INSERT ON "public"."outbox" TO "{role}";' in str(without_insert.value)
    database.rows(f"GRANT INSERT ON outbox TO {role}")
    with pytest.raises(SchemaError) as refused:
        await consumer.drain()
    assert f'GRANT SELECT, INSERT, UPDATE ON "outbox_crons" TO "{role}";' in refused.value.problems
    for grant in refused.value.problems:
        database.rows(grant)
    await consumer.drain()
    database.rows("UPDATE outbox_crons SET last_tick = clock_timestamp() - interval '1 hour'")
    await consumer.drain()

    assert got == [1]
    assert database.value("SELECT count(*) FROM outbox_audit WHERE action = 'enqueued'") == 1
