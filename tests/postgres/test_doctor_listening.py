"""Whether a LISTEN hears anything: on the server itself, and behind a pooler."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

import asyncpg
import pytest
from sqlalchemy import URL

from sa_outbox.doctor.listen_check import find
from tests.support.pooler import pooled

pytestmark = pytest.mark.anyio


def way(url: URL) -> Callable[[], Awaitable[Any]]:
    dsn = url.set(drivername="postgresql").render_as_string(hide_password=False)
    return partial(asyncpg.connect, dsn, statement_cache_size=0)


class Deaf:
    """A connection as behind a pooler: it takes everything, and hears nothing."""

    async def add_listener(self, channel: str, hear: object) -> None: ...

    async def execute(self, statement: str) -> None: ...

    def terminate(self) -> None: ...


@pytest.fixture
def pooler(database_url: URL) -> Iterator[URL]:
    """The worker's database behind pgbouncer in transaction mode."""
    with pooled(database_url) as url:
        yield url


async def test_on_the_server_itself_a_notification_is_heard(database_url: URL) -> None:
    assert await find(way(database_url), way(database_url), "outbox", patience=30) == []


async def test_behind_a_pooler_in_transaction_mode_listen_hears_nothing(
    database_url: URL, pooler: URL
) -> None:
    (finding,) = await find(way(pooler), way(pooler), "outbox", patience=0.5)
    assert finding.code == "listen-unheard"
    assert "--listen-url" in finding.fix

    # Producers may well go through it, if consumers listen past it.
    assert await find(way(database_url), way(pooler), "outbox", patience=30) == []


async def test_a_connection_that_hears_nothing_is_told() -> None:
    async def connect() -> Deaf:
        return Deaf()

    (finding,) = await find(connect, connect, "outbox", patience=0.01)

    assert finding.code == "listen-unheard"


async def test_an_address_that_refuses_is_told(database_url: URL) -> None:
    async def refuse() -> Deaf:
        raise ConnectionRefusedError

    (finding,) = await find(refuse, way(database_url), "outbox")

    assert finding.code == "listen-refused"
    assert finding.evidence["error"] == "ConnectionRefusedError"
