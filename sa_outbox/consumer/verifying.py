"""The assumptions that the reading stands on: verified at the start, and again while running."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from sa_outbox import schema

from .connections import is_database_error
from .gate import Bell

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

    from sa_outbox.settings import Names

    from .shared import Shared


class Verifying:
    def __init__(self, shared: Shared, engine: AsyncEngine, names: Names) -> None:
        self.bell = Bell()
        """Rung when the server may be another one."""
        self._shared = shared
        self._engine = engine
        self._names = names

    async def verify(self) -> None:
        """Raise ``SchemaError`` unless everything holds that the reading stands on."""
        async with self._engine.connect() as connection:
            await connection.run_sync(schema.verify_consuming, self._names)

    async def run(self) -> None:
        interval = self._shared.settings.verify_interval.total_seconds()
        limit = self._shared.settings.probe_timeout.total_seconds()
        while True:
            await self.bell.wait(interval)
            try:
                # Shielded: cancelled on the way, the engine's pool would log an error for it.
                with anyio.move_on_after(limit, shield=True):
                    await self.verify()
            except Exception as error:
                if not is_database_error(error):
                    raise
