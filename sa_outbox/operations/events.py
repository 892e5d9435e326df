"""Find events, and trace one through every listener."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sa_outbox.errors import EventNotFound
from sa_outbox.event.validation import checked_event_id
from sa_outbox.sql.people import searches

from .statement_runner import OperatorRunner

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from uuid import UUID

    from sqlalchemy import Connection

    from sa_outbox.client.status import ListenerStatus
    from sa_outbox.database.tables import Tables
    from sa_outbox.declare.declaration import Listeners

MAX_LISTED = 1000
"""Maximum size of one page."""
WINDOW = 100_000
"""Ids read at a time while searching for events."""
MAX_EXAMINED = 1_000_000
"""Ids after which a page ends even if it is not full: the next one continues from there."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EventFilter:
    """Which events to select: all conditions apply; None and the empty tuple match everything."""

    types: tuple[str, ...] = ()
    """Event types, ``*`` for any run of characters; any of them."""
    key: str | None = None
    tenant: str | None = None
    since: datetime | None = None
    """Written at this time or later. Relies on ids being in the order of writing times, which holds
    unless the server's clock was set back."""
    until: datetime | None = None
    """Written before this time."""
    first_id: int | None = None
    last_id: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class EventSummary:
    """An event without its payload."""

    id: int
    event_id: UUID
    event_type: str
    key: str | None
    tenant: str | None
    created_at: datetime
    run_at: datetime | None
    priority: int


@dataclass(frozen=True, kw_only=True, slots=True)
class EventPage:
    """Events, newest first."""

    events: tuple[EventSummary, ...]
    next_before: int | None
    """Pass this as ``before=`` for the next page; None: this was the last page. A page that is not
    full may have a next one: see ``MAX_EXAMINED``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EventDetail:
    """One event, and its outcome for each listener."""

    event_id: UUID
    event_type: str | None
    position: int | None
    """None: it is no longer in the log; only its dead letters remain."""
    created_at: datetime | None
    summary: EventSummary | None
    payload: str | None
    """JSON, as stored; None when the event is no longer in the log."""
    headers: str | None
    listeners: Mapping[str, ListenerStatus] = field(default_factory=dict)
    """By name. A listener that the asking program does not declare is ``unknown`` unless it left a
    trace: only the declaration determines which events it wants."""
    dead_letters: tuple[int, ...] = ()
    """Ids of its dead letters, including resolved ones."""


def list_events(
    connection: Connection,
    tables: Tables,
    wanted: EventFilter | None = None,
    *,
    before: int | None = None,
    limit: int = 50,
) -> EventPage:
    """A page of events, newest first; *limit* is at most 1000."""
    wanted = wanted or EventFilter()
    runner = OperatorRunner(connection, tables)
    limit = max(1, min(limit, MAX_LISTED))
    lower, upper = _bounds(runner, tables, wanted)
    if before is not None:
        upper = min(upper, before - 1)
    given = [
        name for name in ("key", "tenant", "since", "until") if getattr(wanted, name) is not None
    ]
    values: dict[str, Any] = {name: getattr(wanted, name) for name in given}
    if wanted.types:
        given.append("types")
        values |= searches.patterns(wanted.types)
    statement = searches.events(tables, given)
    found: list[EventSummary] = []
    stop = max(lower, upper - MAX_EXAMINED + 1)
    while upper >= stop and len(found) < limit:
        low = max(stop, upper - WINDOW + 1)
        rows = runner.rows(statement, lower=low, upper=upper, limit=limit - len(found), **values)
        found += [EventSummary(**row) for row in rows]
        upper = low - 1
    reached = found[-1].id if len(found) >= limit else upper + 1
    return EventPage(events=tuple(found), next_before=reached if reached > lower else None)


def show_event(
    connection: Connection,
    tables: Tables,
    *,
    event_id: UUID | str | None = None,
    position: int | None = None,
    listeners: Listeners | None = None,
) -> EventDetail:
    """One event by its *event_id* or its *position* (its id in the log), with its status for every
    listener. *listeners* are those that the program declares, if it is known; of others, what
    their consumers have registered decides which events they want.

    Raises :class:`EventNotFound`.
    """
    from sa_outbox.client.status import Statuses  # noqa: PLC0415
    from sa_outbox.declare.declaration import Listeners  # noqa: PLC0415 - a list of events needs neither
    from sa_outbox.settings import Settings  # noqa: PLC0415

    runner = OperatorRunner(connection, tables)
    rows = []
    if position is not None:
        rows = runner.rows(searches.event(tables, by_position=True), position=position)
        if not rows:
            raise EventNotFound(f"there is no event with the id {position} in the log")
        event_id = rows[0]["event_id"]
    if event_id is None:
        raise EventNotFound("pass the event_id, or the event's id in the log")
    wanted = checked_event_id(event_id)
    if not rows:
        rows = runner.rows(searches.event(tables, by_position=False), event_id=wanted)
    settings = Settings(names=tables.names)
    declared = Listeners() if listeners is None else listeners
    statuses = Statuses(tables, settings, declared, by_registration=True)
    status = statuses.ask(connection, statuses.wanted(wanted, None, None, None))
    dead = runner.rows(
        searches.dead_letters(tables, ["event_id"], oldest_first=True),
        event_id=wanted,
        beyond=0,
        limit=MAX_LISTED,
    )
    texts = {name: rows[0][name] if rows else None for name in ("payload", "headers")}
    return EventDetail(
        event_id=wanted,
        event_type=status.event_type,
        position=status.position,
        created_at=status.created_at,
        summary=_summary(rows[0]) if rows else None,
        payload=texts["payload"],
        headers=texts["headers"],
        listeners=status.listeners,
        dead_letters=tuple(row["id"] for row in dead),
    )


def first_id_since(connection: Connection, tables: Tables, moment: datetime) -> int | None:
    """The id of the first event written at *moment* or later; None: there is none.

    A binary search: an id and its time are drawn together, so their orders agree unless the
    server's clock was set back. A few dozen index lookups, whatever the length of the log.
    """
    return _first_since(OperatorRunner(connection, tables), tables, moment)


def _first_since(runner: OperatorRunner, tables: Tables, moment: datetime) -> int | None:
    ends = runner.rows(searches.ends(tables))[0]
    if ends["last"] is None:
        return None
    look = searches.written_from(tables)
    low, high = ends["first"], ends["last"] + 1  # the answer is in [low, high]
    while low < high:
        middle = (low + high) // 2
        rows = runner.rows(look, id=middle)
        if not rows or rows[0]["created_at"] >= moment:
            high = middle
        else:
            low = rows[0]["id"] + 1
    rows = runner.rows(look, id=low)
    return rows[0]["id"] if rows else None


def _bounds(runner: OperatorRunner, tables: Tables, wanted: EventFilter) -> tuple[int, int]:
    ends = runner.rows(searches.ends(tables))[0]
    if ends["last"] is None:
        return 1, 0
    lower = max(ends["first"], wanted.first_id or 0)
    upper = ends["last"] if wanted.last_id is None else min(ends["last"], wanted.last_id)
    if wanted.since is not None:
        since = _first_since(runner, tables, wanted.since)
        lower = upper + 1 if since is None else max(lower, since)
    if wanted.until is not None:
        until = _first_since(runner, tables, wanted.until)
        upper = upper if until is None else min(upper, until - 1)
    return lower, upper


def _summary(row: Mapping[str, Any]) -> EventSummary:
    return EventSummary(**{name: row[name] for name in row if name not in ("payload", "headers")})
