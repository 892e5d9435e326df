"""Finding events, and the path of one through every listener."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sa_outbox.arguments import checked_event_id
from sa_outbox.errors import EventNotFound
from sa_outbox.sql import searching

from .asking import Asking

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from uuid import UUID

    from sqlalchemy import Connection

    from sa_outbox.listener import Listeners
    from sa_outbox.status import ListenerStatus
    from sa_outbox.tables import Tables

MOST_LISTED = 1000
"""Of one page, whatever is asked for."""
WINDOW = 100_000
"""Ids that are read at once while it is looked for events."""
MOST_LOOKED_AT = 1_000_000
"""Ids after which a page ends although it is not full: the next one goes on from there."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EventFilter:
    """Which events: all conditions hold, None and the empty tuple ask for nothing."""

    types: tuple[str, ...] = ()
    """Event types, ``*`` for any run of characters; one of them."""
    key: str | None = None
    tenant: str | None = None
    since: datetime | None = None
    """Written then or later. By the order of ids, which is that of the times of writing, as long
    as the server's clock was not set back."""
    until: datetime | None = None
    """Written before."""
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
    """Events, the newest first."""

    events: tuple[EventSummary, ...]
    next_before: int | None
    """Ask with ``before=`` this for the next page; None: that was all. A page that is not full may
    have a next one: see ``MOST_LOOKED_AT``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EventDetail:
    """One event, and what became of it."""

    event_id: UUID
    event_type: str | None
    position: int | None
    """None: it is not in the log any more, and its dead letters are what is left."""
    created_at: datetime | None
    summary: EventSummary | None
    payload: str | None
    """JSON, as it is stored; None when the event is gone from the log."""
    headers: str | None
    listeners: Mapping[str, ListenerStatus] = field(default_factory=dict)
    """By name. Of a listener that the program asking does not declare, ``unknown`` unless it has
    left a trace: only the declaration says which events it wants."""
    dead_letters: tuple[int, ...] = ()
    """Ids of its dead letters, resolved ones too."""


def list_events(
    connection: Connection,
    tables: Tables,
    wanted: EventFilter | None = None,
    *,
    before: int | None = None,
    limit: int = 50,
) -> EventPage:
    """A page of events, the newest first; *limit* is at most 1000."""
    wanted = wanted or EventFilter()
    asking = Asking(connection, tables)
    limit = max(1, min(limit, MOST_LISTED))
    lower, upper = _bounds(asking, tables, wanted)
    if before is not None:
        upper = min(upper, before - 1)
    given = [
        name for name in ("key", "tenant", "since", "until") if getattr(wanted, name) is not None
    ]
    values: dict[str, Any] = {name: getattr(wanted, name) for name in given}
    if wanted.types:
        given.append("types")
        values |= searching.patterns(wanted.types)
    statement = searching.events(tables, given)
    found: list[EventSummary] = []
    stop = max(lower, upper - MOST_LOOKED_AT + 1)
    while upper >= stop and len(found) < limit:
        low = max(stop, upper - WINDOW + 1)
        rows = asking.rows(statement, lower=low, upper=upper, limit=limit - len(found), **values)
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
    """One event by its *event_id* or its *position* (its id in the log), with its path through
    every listener. *listeners* are those that the program declares, if it is known.

    Raises :class:`EventNotFound`.
    """
    from sa_outbox.listener import Listeners  # noqa: PLC0415 - a list of events needs neither
    from sa_outbox.settings import Settings  # noqa: PLC0415
    from sa_outbox.status import Statuses  # noqa: PLC0415

    asking = Asking(connection, tables)
    rows = []
    if position is not None:
        rows = asking.rows(searching.event(tables, by_position=True), position=position)
        if not rows:
            raise EventNotFound(f"there is no event with the id {position} in the log")
        event_id = rows[0]["event_id"]
    if event_id is None:
        raise EventNotFound("say which event: event_id, or its id in the log")
    wanted = checked_event_id(event_id)
    if not rows:
        rows = asking.rows(searching.event(tables, by_position=False), event_id=wanted)
    settings = Settings(names=tables.names)
    statuses = Statuses(tables, settings, Listeners() if listeners is None else listeners)
    status = statuses.ask(connection, statuses.wanted(wanted, None, None, None))
    dead = asking.rows(
        searching.dead_letters(tables, ["event_id"], oldest_first=True),
        event_id=wanted,
        beyond=0,
        limit=MOST_LISTED,
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
    """The id of the first event that was written at *moment* or later; None: there is none.

    Found by halving: an id and its time are drawn together, so their orders agree, as long as the
    server's clock was not set back. A few dozen index lookups, whatever the length of the log.
    """
    return _first_since(Asking(connection, tables), tables, moment)


def _first_since(asking: Asking, tables: Tables, moment: datetime) -> int | None:
    ends = asking.rows(searching.ends(tables))[0]
    if ends["last"] is None:
        return None
    look = searching.written_from(tables)
    low, high = ends["first"], ends["last"] + 1  # the answer is in [low, high]
    while low < high:
        middle = (low + high) // 2
        rows = asking.rows(look, id=middle)
        if not rows or rows[0]["created_at"] >= moment:
            high = middle
        else:
            low = rows[0]["id"] + 1
    rows = asking.rows(look, id=low)
    return rows[0]["id"] if rows else None


def _bounds(asking: Asking, tables: Tables, wanted: EventFilter) -> tuple[int, int]:
    ends = asking.rows(searching.ends(tables))[0]
    if ends["last"] is None:
        return 1, 0
    lower = max(ends["first"], wanted.first_id or 0)
    upper = ends["last"] if wanted.last_id is None else min(ends["last"], wanted.last_id)
    if wanted.since is not None:
        since = _first_since(asking, tables, wanted.since)
        lower = upper + 1 if since is None else max(lower, since)
    if wanted.until is not None:
        until = _first_since(asking, tables, wanted.until)
        upper = upper if until is None else min(upper, until - 1)
    return lower, upper


def _summary(row: Mapping[str, Any]) -> EventSummary:
    return EventSummary(**{name: row[name] for name in row if name not in ("payload", "headers")})
