"""A role that may not consume gets the statements that let it."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import URL, create_engine, text
from sqlalchemy.exc import ProgrammingError

from sa_outbox import Event, Outbox
from sa_outbox.consumer import Consumer
from sa_outbox.database.rights import WRITTEN
from sa_outbox.errors import SchemaError
from sa_outbox.operations import sealing
from sa_outbox.settings import Notify
from tests.support import comes_true
from tests.support.receiver import LOCAL, endpoints_command, receiving, secret_of

from .conftest import Database, Producer

pytestmark = [pytest.mark.anyio, pytest.mark.woken_by("notify")]


@pytest.fixture
def role(database: Database) -> Iterator[str]:
    name = f"consumer_{secrets.token_hex(6)}"  # roles are the server's: other tests see them
    database.rows(f"CREATE ROLE {name} LOGIN PASSWORD 'known'")
    database.rows(f"GRANT SELECT, INSERT ON outbox TO {name}")
    database.rows(f"GRANT SELECT ON outbox_meta TO {name}")
    yield name
    database.rows(f"DROP OWNED BY {name}")
    database.rows(f"DROP ROLE {name}")


async def test_what_it_lacks_is_said_as_grants_that_fix_it(
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

    columns = "disabled_at, disabled_why, updated_at"
    asked = f'GRANT SELECT, UPDATE ({columns}) ON "outbox_endpoints" TO "{role}";'
    assert asked in refused.value.problems
    for grant in refused.value.problems:
        database.rows(grant)
    await consumer.drain()


async def test_a_consumer_disables_an_endpoint_that_is_gone_and_may_change_nothing_else_of_it(
    role: str,
    outbox: Outbox,
    producer: Producer,
    database: Database,
    migrated_url: URL,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = migrated_url.set(drivername="postgresql").render_as_string(hide_password=False)
    monkeypatch.setenv("SA_OUTBOX_DATABASE_URL", url)
    monkeypatch.setenv(sealing.VARIABLE, sealing.new_key())
    outbox.webhooks(allow=LOCAL, ports="any")
    consumer = Consumer(outbox, migrated_url.set(username=role, password="known"))
    with pytest.raises(SchemaError) as refused:
        await consumer.drain()
    for grant in refused.value.problems:
        database.rows(grant)
    async with receiving() as receiver:
        await secret_of(await endpoints_command("add", "acme", receiver.url, "--on", "*"))
        await consumer.drain()
        producer.add(1)
        receiver.status = 410
        running = asyncio.create_task(consumer.run())
        disabled = "SELECT disabled_why FROM outbox_endpoints"
        await comes_true(lambda: database.value(disabled) == "it answered 410")
        consumer.stop()
        await running

    theirs = create_engine(migrated_url.set(username=role, password="known"))
    for change in (
        "UPDATE outbox_endpoints SET url = 'https://evil.example/'",
        "UPDATE outbox_endpoints SET secrets = '[]'",
        "UPDATE outbox_endpoints SET bearer = NULL",
        "UPDATE outbox_endpoints SET settings = '{}'",
        "INSERT INTO outbox_endpoints (name, url) VALUES ('evil', 'https://evil.example/')",
        "DELETE FROM outbox_endpoints",
    ):
        with theirs.begin() as connection, pytest.raises(ProgrammingError, match="permission"):
            connection.execute(text(change))
    theirs.dispose()


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
    columns = ", ".join(WRITTEN)
    grant = f'GRANT INSERT ({columns}) ON "public"."outbox" TO "{role}";'
    assert grant in str(without_insert.value)
    database.rows(grant)
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
