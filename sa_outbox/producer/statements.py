"""The statements that write events into one outbox's tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..sql.log.events import claim_idempotency_keys, insert_events
from ..sql.people.audit import record_added
from ..sql.server.transactions import abort

if TYPE_CHECKING:
    from uuid import UUID

    from sqlalchemy import Insert, TextClause
    from sqlalchemy.sql.dml import ReturningInsert

    from ..database.tables import Tables
    from ..settings import Settings


class Statements:
    __slots__ = ("abort", "claim", "insert", "record")

    def __init__(self, tables: Tables, settings: Settings) -> None:
        self.insert: Insert = insert_events(tables)
        self.abort: TextClause = abort()
        self.claim: ReturningInsert[str, str, str, UUID] = claim_idempotency_keys(tables)
        self.record: Insert | None = record_added(tables) if settings.audit == "all" else None
