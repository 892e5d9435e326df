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
