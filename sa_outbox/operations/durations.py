"""How long handlers take, as far as the database knows: from the audit.

Nothing is written per event for this. With ``audit="all"`` the start and the end of every attempt
are recorded anyway; otherwise only the consumers' own metrics know (``handler_seconds``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sa_outbox.sql.people import records as sql

from .audit import READS
from .statement_runner import OperatorRunner

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Connection

    from sa_outbox.database.tables import Tables

EXAMINED: Final = 20_000
"""Newest records of the audit that are examined."""
MAX_LISTED: Final = 200
"""Maximum of listeners and event types, the slowest first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Duration:
    """How long the attempts of one listener took, for one event type, in seconds."""

    listener: str
    event_type: str | None
    attempts: int
    failed: int
    p50: float
    p95: float
    p99: float
    longest: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Durations:
    """Those of the attempts in the newest records of the audit, the slowest first."""

    found: tuple[Duration, ...]
    records: int
    """How many records were examined."""
    since: datetime | None
    """Time of the oldest of these."""


def handler_durations(connection: Connection, tables: Tables) -> Durations:
    """Percentiles by listener and event type. Empty without ``audit="all"``."""
    runner = OperatorRunner(connection, tables, READS)
    rows = runner.rows(sql.durations(tables), examined=EXAMINED, limit=MAX_LISTED)
    seen = runner.rows(sql.examined(tables), examined=EXAMINED)[0]
    return Durations(found=tuple(Duration(**row) for row in rows), **seen)
