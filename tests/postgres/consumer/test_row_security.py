"""A consumer that row-level security hides events from refuses to run: it would lose them."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import URL
from sqlalchemy.ext.asyncio import create_async_engine

from sa_outbox import Event, Outbox
from sa_outbox.consumer import Consumer
from sa_outbox.errors import SchemaError

from .conftest import Consuming, Database, Producer

pytestmark = [pytest.mark.anyio, pytest.mark.woken_by("poll")]


@pytest.fixture
def role(database: Database) -> Iterator[str]:
    """One that may do everything, and sees what policies let it see."""
    name = f"hidden_from_{secrets.token_hex(6)}"
    database.rows(f"CREATE ROLE {name} LOGIN PASSWORD 'known'")
    database.rows(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {name}")
    database.rows(f"GRANT SELECT ON ALL SEQUENCES IN SCHEMA public TO {name}")
    database.rows("CREATE POLICY of_a_tenant ON outbox USING (tenant = 'ours')")
    yield name
    for table in ("outbox", "outbox_deliveries"):
        database.rows(f"ALTER TABLE {table} DISABLE ROW LEVEL SECURITY")
    database.rows("DROP POLICY of_a_tenant ON outbox")
    database.rows(f"DROP OWNED BY {name}")
    database.rows(f"DROP ROLE {name}")


def listen(outbox: Outbox) -> list[int]:
    got: list[int] = []

    @outbox.listener("billing", on="order.*")
    async def charge(event: Event[Any]) -> None:
        got.append(event.payload["n"])

    return got


@pytest.mark.parametrize("table", ["outbox", "outbox_deliveries"])
async def test_it_is_refused_at_the_start(
    role: str,
    table: str,
    outbox: Outbox,
    producer: Producer,
    database: Database,
    migrated_url: URL,
) -> None:
    got = listen(outbox)
    database.rows(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
    producer.add(1)
    consumer = Consumer(outbox, migrated_url.set(username=role, password="known"))

    with pytest.raises(SchemaError, match=f"Row-level security on {table}"):
        await consumer.drain()
    assert database.rows("SELECT FROM outbox_listeners") == []
    database.rows(f"ALTER TABLE {table} DISABLE ROW LEVEL SECURITY")
    await consumer.drain()

    assert got == [1]


async def test_it_ends_the_run_when_it_comes_to_apply(
    role: str, outbox: Outbox, database: Database, consuming: Consuming, migrated_url: URL
) -> None:
    listen(outbox)
    url = migrated_url.set(drivername="postgresql+asyncpg", username=role, password="known")
    engine = create_async_engine(url)

    async def run_until_it_ends() -> None:
        options: dict[str, Any] = {"verify_interval": timedelta(milliseconds=50)}
        async with consuming(outbox, engine=engine, **options) as running:
            database.rows("ALTER TABLE outbox ENABLE ROW LEVEL SECURITY")
            await running.stopped.wait()

    with pytest.raises(SchemaError, match="Row-level security"):
        await run_until_it_ends()
    await engine.dispose()


async def test_it_is_no_fault_for_a_role_that_sees_all_rows(
    role: str, outbox: Outbox, producer: Producer, database: Database, migrated_url: URL
) -> None:
    got = listen(outbox)
    database.rows("ALTER TABLE outbox ENABLE ROW LEVEL SECURITY")
    database.rows(f"ALTER ROLE {role} BYPASSRLS")
    producer.add(1)

    await Consumer(outbox, migrated_url.set(username=role, password="known")).drain()

    assert got == [1]
