"""Deleting rows whose time is over, in small transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sa_outbox.observe import RowsPurged
from sa_outbox.sql import purging

from .connections import Query

if TYPE_CHECKING:
    from collections.abc import Callable

    from sa_outbox.observe import Observation
    from sa_outbox.settings import ConsumerSettings
    from sa_outbox.tables import Tables

    from .connections import Connection

ROWS_AT_ONCE = 1_000
MOST_BATCHES = 200
"""Of one table in one round."""


class Purging:
    def __init__(
        self, tables: Tables, settings: ConsumerSettings, tell: Callable[[Observation], object]
    ) -> None:
        self._tables = tables
        self._settings = settings
        self._tell = tell
        expiring = (tables.idempotency_keys, tables.inbox, tables.results)
        self._expired = {each.name: Query(purging.expired(each)) for each in expiring}
        self._counts = {each.name: Query(purging.expired_count(each)) for each in expiring}
        self._audit = Query(purging.old_audit(tables))
        self._dead_letters = Query(purging.resolved_dead_letters(tables))
        self._cancelled = Query(purging.cancelled_deliveries(tables))
        self._above = 0

    async def count(self, connection: Connection) -> dict[str, int]:
        """How many rows have expired, of each table; up to a million of each."""
        return {
            name: await connection.value(query, limit=1_000_000)
            for name, query in self._counts.items()
        }

    async def run(self, connection: Connection, floor: int) -> None:
        """Delete what is over. *floor*: below it, no event is in the log any more."""
        for name, query in self._expired.items():
            await self._repeat(connection, name, query)
        kept = self._settings.audit_retention
        if kept is not None:
            seconds = kept.total_seconds()
            await self._repeat(connection, self._tables.audit.name, self._audit, seconds=seconds)
        await self._repeat(connection, self._tables.deliveries.name, self._cancelled, below=floor)
        await self._purge_dead_letters(connection)

    async def _repeat(
        self, connection: Connection, table: str, query: Query, **values: object
    ) -> None:
        rows = 0
        for _ in range(MOST_BATCHES):
            gone: int = await connection.value(query, limit=ROWS_AT_ONCE, **values)
            rows += gone
            if gone < ROWS_AT_ONCE:
                break
        if rows:
            self._tell(RowsPurged(table, rows))

    async def _purge_dead_letters(self, connection: Connection) -> None:
        """Go through all of them, if need be in several rounds."""
        kept = self._settings.dead_letter_retention
        if kept is None:
            return
        rows = 0
        for _ in range(MOST_BATCHES):
            found = (
                await connection.rows(
                    self._dead_letters,
                    above=self._above,
                    limit=ROWS_AT_ONCE,
                    seconds=kept.total_seconds(),
                )
            )[0]
            rows += found["gone"]
            self._above = found["last"] or 0
            if found["last"] is None:
                break
        if rows:
            self._tell(RowsPurged(self._tables.dead_letters.name, rows))
