"""A single round of maintenance, for the command ``sa-outbox prune``."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio

from ..connection.connections import Connections, best_effort
from ..connection.engines import engines
from .round import MaintenanceRound

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from sqlalchemy import URL, Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

    from sa_outbox.observe import Observation, RetentionHeld
    from sa_outbox.outbox import Outbox
    from sa_outbox.settings import ConsumerSettings

    from ..connection.connections import Connection
    from .round import Outlook

CLOSE_SECONDS = 1.0


async def prune(
    outbox: Outbox,
    database: str | URL | Engine | AsyncEngine,
    settings: ConsumerSettings,
    emit: Callable[[Observation], object] = lambda _: None,
) -> tuple[RetentionHeld, ...]:
    """Do one round now; *emit* is called with what happens. Returns what blocks retention."""
    async with _connection(database, settings) as connection:
        return await MaintenanceRound(outbox.tables, settings, emit).run(connection)


async def preview(
    outbox: Outbox, database: str | URL | Engine | AsyncEngine, settings: ConsumerSettings
) -> Outlook:
    """What ``prune`` would do. Changes nothing."""
    async with _connection(database, settings) as connection:
        return await MaintenanceRound(outbox.tables, settings, lambda _: None).look(
            connection, count=True
        )


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
            await connections.close(CLOSE_SECONDS)
        await best_effort(made.dispose(), CLOSE_SECONDS)
