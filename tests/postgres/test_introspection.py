"""The driver asks about a type of the server once, and about one of a program each time."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest
from sqlalchemy import URL

pytestmark = pytest.mark.anyio

ASKED = r"SELECT count(*) FROM pg_prepared_statements WHERE statement ~ '^\s*WITH RECURSIVE'"


@pytest.fixture
async def own_type(database_url: URL) -> AsyncIterator[str]:
    connection = await asyncpg.connect(database_url.render_as_string(hide_password=False))
    await connection.execute("CREATE TYPE color AS ENUM ('red', 'blue')")
    yield "color"
    await connection.execute("DROP TYPE color")
    await connection.close()


async def sent_and_asked(url: URL, type_name: str, value: object) -> tuple[object, int]:
    """On a new connection: what comes back, and how often it had to ask what that is."""
    connection = await asyncpg.connect(url.render_as_string(hide_password=False))
    try:
        found = await connection.fetchval(f"SELECT $1::{type_name}[]", [value])
        return found, await connection.fetchval(ASKED)
    finally:
        await connection.close()


async def test_the_next_connection_knows_what_every_server_has(database_url: URL) -> None:
    await sent_and_asked(database_url, "bigint", 1)

    assert await sent_and_asked(database_url, "bigint", 1) == ([1], 0)


async def test_each_connection_asks_about_a_program_s_type(
    database_url: URL, own_type: str
) -> None:
    """In another database its number may be that of another type."""
    await sent_and_asked(database_url, own_type, "red")

    assert await sent_and_asked(database_url, own_type, "red") == (["red"], 1)
