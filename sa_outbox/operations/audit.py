"""What was done: by operators always, by consumers if the outbox has an audit."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

from sa_outbox.sql.people import records as sql

from .statement_runner import OperatorRunner

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from sqlalchemy import Connection

    from sa_outbox.database.tables import Tables

MAX_LISTED: Final = 1000
"""Maximum size of one page."""
MAX_EXAMINED: Final = 100_000
"""Records after which a page ends even if it is not full: the next one continues from there."""
READS: Final = {"audit": "SELECT"}
Action: TypeAlias = Literal[
    # Of an event, or of an attempt
    "enqueued", "started", "succeeded", "failed", "retried", "deadlettered", "cancelled",
    # By an operator, of deliveries, dead letters and events
    "retried now", "cancel requested", "replayed", "discarded", "fixed", "edited", "erased",
    # By an operator, of listeners, crons and the database
    "paused", "resumed", "rewound", "skipped", "retired", "cron run now", "adopted",
    "endpoint added", "endpoint moved", "endpoint changed", "endpoint rotated",
    "endpoint resealed", "endpoint disabled", "endpoint enabled", "endpoint removed",
]  # fmt: skip
"""What an outbox writes into its audit. A record that somebody inserted by hand may say more."""
ACTIONS: tuple[Action, ...] = get_args(Action)
_ABOVE_ALL: Final = 2**63 - 1
_FILTERS: Final = ("event_id", "action", "actor", "listener")


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditFilter:
    """Which records to select: all conditions apply; None matches everything."""

    event_id: UUID | None = None
    action: str | None = None
    actor: str | None = None
    """The actor's id: an operator's name, or whoever caused the event."""
    listener: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditRecord:
    """One thing that was done, or happened to an event."""

    id: int
    recorded_at: datetime | None
    action: str
    event_id: UUID | None
    event_type: str | None
    listener: str | None
    tenant: str | None
    project_id: str | None
    actor_type: str | None
    """``operator``: someone did it by hand."""
    actor_id: str | None
    request_id: str | None
    correlation_id: str | None
    attempt: int | None
    detail: dict[str, Any]
    """More about this action; the reason that an operator gave is ``why``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditPage:
    """Records, newest first."""

    records: tuple[AuditRecord, ...]
    next_before: int | None
    """Pass this as ``before=`` for the next page; None: this was the last page. A page that is not
    full may have a next one: see ``MAX_EXAMINED``."""


def list_audit(
    connection: Connection,
    tables: Tables,
    wanted: AuditFilter | None = None,
    *,
    before: int | None = None,
    limit: int = 50,
) -> AuditPage:
    """A page of the audit, newest first; *limit* is at most 1000."""
    wanted = wanted or AuditFilter()
    given = [name for name in _FILTERS if getattr(wanted, name) is not None]
    values: dict[str, Any] = {name: getattr(wanted, name) for name in given}
    limit = max(1, min(limit, MAX_LISTED))
    runner = OperatorRunner(connection, tables, READS)
    bounds: dict[str, Any] = {"before": _ABOVE_ALL if before is None else before}
    if wanted.event_id is None:
        bounds["examined"] = MAX_EXAMINED
    rows = runner.rows(sql.found(tables, given), **bounds, limit=limit + 1, **values)
    found = tuple(_record(row) for row in rows[:limit])
    if len(rows) > limit:
        return AuditPage(records=found, next_before=found[-1].id)
    if wanted.event_id is not None:
        return AuditPage(records=found, next_before=None)
    ends = runner.rows(sql.last_examined(tables), **bounds)
    return AuditPage(records=found, next_before=ends[0]["id"] if ends else None)


def _record(row: Any) -> AuditRecord:
    return AuditRecord(**{**row, "detail": _detail(row["detail"])})


def _detail(text: str) -> dict[str, Any]:
    """Of our own records it is a short object; anybody with the right may have written others."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = text
    return found if isinstance(found, dict) else {"detail": text}
