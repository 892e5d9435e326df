"""A round of maintenance by itself, for the command ``sa-outbox prune``."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio

from .connections import Connections, swallow
from .engines import engines
from .upkeep import Upkeep

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from sqlalchemy import URL, Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

    from sa_outbox.observe import Observation, RetentionHeld
    from sa_outbox.outbox import Outbox
    from sa_outbox.settings import ConsumerSettings

    from .connections import Connection
    from .upkeep import Outlook

CLOSING = 1.0


async def prune(
    outbox: Outbox,
    database: str | URL | Engine | AsyncEngine,
    settings: ConsumerSettings,
    tell: Callable[[Observation], object] = lambda _: None,
) -> tuple[RetentionHeld, ...]:
    """Do one round now; *tell* is called with what happens. Returns what is held back."""
    async with _connection(database, settings) as connection:
        return await Upkeep(outbox.tables, settings, tell).run(connection)


async def preview(
    outbox: Outbox, database: str | URL | Engine | AsyncEngine, settings: ConsumerSettings
) -> Outlook:
    """What ``prune`` would do. Changes nothing."""
    async with _connection(database, settings) as connection:
        return await Upkeep(outbox.tables, settings, lambda _: None).look(connection, count=True)


@asynccontextmanager
async def _connection(
    database: str | URL | Engine | AsyncEngine, settings: ConsumerSettings
) -> AsyncIterator[Connection]:
    made = engines(database, None, ())
    connections = Connections.of(made.connect, settings, most=1)
    try:
        async with connections.connection() as connection:
            yield connection
    finally:
        with anyio.CancelScope(shield=True):
            await connections.close(CLOSING)
        await swallow(made.dispose(), CLOSING)
