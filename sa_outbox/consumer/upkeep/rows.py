"""Delete expired rows, in small transactions."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import asyncpg

from sa_outbox.observe import EventsGone, RetentionRefused, RowsPurged
from sa_outbox.sql.listener import deliveries, expiry

from ..connection.connections import Query

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sa_outbox.database.tables import Tables
    from sa_outbox.observe import Observation
    from sa_outbox.settings import ConsumerSettings

    from ..connection.connections import Connection

ROWS_AT_ONCE = 1_000
MAX_BATCHES = 200
"""Batches per table and round."""
MAX_PAGES = 20
"""Pages of deliveries examined per round, for events that are gone."""


class RowPurge:
    def __init__(
        self, tables: Tables, settings: ConsumerSettings, emit: Callable[[Observation], object]
    ) -> None:
        self._tables = tables
        self._settings = settings
        self._emit = emit
        expiring = (tables.idempotency_keys, tables.inbox, tables.results)
        self._expired = {each.name: Query(expiry.expired(each)) for each in expiring}
        self._counts = {each.name: Query(expiry.expired_count(each)) for each in expiring}
        self._audit = Query(expiry.old_audit(tables))
        self._dead_letters = Query(expiry.resolved_dead_letters(tables))
        self._orphans = Query(expiry.orphans(tables))
        self._promote = Query(deliveries.promote(tables))
        self._above = 0
        self._orphans_above = ("", 0)

    async def count(self, connection: Connection) -> dict[str, int]:
        """How many rows have expired, per table; up to a million each."""
        return {
            name: await connection.value(query, limit=1_000_000)
            for name, query in self._counts.items()
        }

    async def run(self, connection: Connection) -> None:
        """Delete what has expired."""
        for name, query in self._expired.items():
            await self._if_allowed(name, self._repeat(connection, name, query))
        kept = self._settings.audit_retention
        if kept is not None:
            seconds, name = kept.total_seconds(), self._tables.audit.name
            work = self._repeat(connection, name, self._audit, seconds=seconds)
            await self._if_allowed(name, work)
        name = self._tables.deliveries.name
        await self._if_allowed(name, self._purge_orphans(connection))
        name = self._tables.dead_letters.name
        await self._if_allowed(name, self._purge_dead_letters(connection))

    async def _if_allowed(self, table: str, work: Awaitable[None]) -> None:
        """What this role may not delete is reported, and the other tables are processed."""
        try:
            await work
        except asyncpg.InsufficientPrivilegeError as error:
            self._emit(RetentionRefused(f"purge {table}", str(error)))

    async def _repeat(
        self, connection: Connection, table: str, query: Query, **values: object
    ) -> None:
        rows = 0
        for _ in range(MAX_BATCHES):
            gone: int = await connection.value(query, limit=ROWS_AT_ONCE, **values)
            rows += gone
            if gone < ROWS_AT_ONCE:
                break
        if rows:
            self._emit(RowsPurged(table, rows))

    async def _purge_orphans(self, connection: Connection) -> None:
        """Deliveries whose event is gone. Goes through all of them, in several rounds if needed."""
        ended: dict[str, list[int]] = {}
        cancelled = 0
        for _ in range(MAX_PAGES):
            listener, position = self._orphans_above
            async with connection.transaction():
                found = await connection.rows(
                    self._orphans, listener=listener, position=position, limit=ROWS_AT_ONCE
                )
                gone = json.loads(found[0]["gone"])
                for each in gone:
                    if each["key"] is not None:  # those behind it wait for it no longer
                        freed = {"listener": each["listener"], "keys": [each["key"]]}
                        await connection.rows(self._promote, **freed)
            cancelled += sum(each["state"] == "cancelled" for each in gone)
            for each in gone:
                if each["state"] != "cancelled":
                    ended.setdefault(each["listener"], []).append(each["position"])
            last = found[0]["last_listener"], found[0]["last_position"]
            self._orphans_above = ("", 0) if last[0] is None else last
            if last[0] is None:
                break
        if cancelled:
            self._emit(RowsPurged(self._tables.deliveries.name, cancelled))
        for name, positions in ended.items():
            self._emit(EventsGone(name, len(positions), min(positions)))

    async def _purge_dead_letters(self, connection: Connection) -> None:
        """Goes through all of them, in several rounds if needed."""
        kept = self._settings.dead_letter_retention
        if kept is None:
            return
        rows = 0
        for _ in range(MAX_BATCHES):
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
            self._emit(RowsPurged(self._tables.dead_letters.name, rows))
