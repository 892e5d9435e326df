"""What readers saw, and how it compares with what was committed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
from psycopg.rows import class_row
from sqlalchemy import text

from sa_outbox import Event
from tests.support.writers import OPEN_ELSEWHERE

TABLE = """
CREATE TABLE seen (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    listener text NOT NULL,
    position bigint NOT NULL,
    event_id uuid NOT NULL,
    key text,
    ver int,
    created_at timestamptz NOT NULL,
    seen_at timestamptz NOT NULL DEFAULT clock_timestamp()
)
"""
"""A row each time a listener sees an event; ``number`` is the order."""

SEE = text(
    "INSERT INTO seen (listener, position, event_id, key, ver, created_at)"
    " VALUES (:listener, :position, :event_id, :key, :ver, :created_at)"
)


class Written(NamedTuple):
    """An event in the log."""

    position: int
    event_id: UUID
    key: str
    ver: int


class Seen(NamedTuple):
    position: int
    event_id: UUID
    key: str
    ver: int
    seen_at: datetime


def sight(listener: str, event: Event[Any]) -> dict[str, Any]:
    """The parameters of ``SEE``."""
    return {
        "listener": listener,
        "position": event.position,
        "event_id": event.event_id,
        "key": event.key,
        "ver": event.payload["ver"],
        "created_at": event.created_at,
    }


def read_log(dsn: str) -> list[Written]:
    """The truth, once every writer has ended."""
    with psycopg.connect(dsn) as connection, connection.cursor(row_factory=class_row(Written)) as c:
        return c.execute(
            "SELECT id AS position, event_id, key, (payload->>'ver')::int AS ver"
            " FROM outbox ORDER BY id"
        ).fetchall()


def read_seen(dsn: str, listener: str) -> list[Seen]:
    """In the order in which it was seen."""
    with psycopg.connect(dsn) as connection, connection.cursor(row_factory=class_row(Seen)) as c:
        return c.execute(
            "SELECT position, event_id, key, ver, seen_at FROM seen"
            " WHERE listener = %s ORDER BY number",
            [listener],
        ).fetchall()


def lost(log: Sequence[Written], seen: Sequence[Seen]) -> set[UUID]:
    return {each.event_id for each in log} - {each.event_id for each in seen}


def ghosts(log: Sequence[Written], seen: Sequence[Seen]) -> set[UUID]:
    """Seen, but never committed."""
    return {each.event_id for each in seen} - {each.event_id for each in log}


def doubled(seen: Sequence[Seen]) -> set[UUID]:
    times = Counter(each.event_id for each in seen)
    return {event_id for event_id, count in times.items() if count > 1}


def key_inversions(seen: Sequence[Seen]) -> list[Seen]:
    """Events that came after a later version of their aggregate. Repeats are not counted."""
    latest: dict[str, int] = {}
    inverted = []
    for each in _first_time(seen):
        if each.ver < latest.get(each.key, 0):
            inverted.append(each)
        latest[each.key] = max(each.ver, latest.get(each.key, 0))
    return inverted


def id_inversions(seen: Sequence[Seen]) -> list[Seen]:
    """Events that came after one with a higher id. Repeats are not counted."""
    latest = 0
    inverted = []
    for each in _first_time(seen):
        if each.position < latest:
            inverted.append(each)
        latest = max(each.position, latest)
    return inverted


def delays(seen: Sequence[Seen], committed: Mapping[UUID, datetime]) -> list[float]:
    """Seconds from an event's commit to when it was first seen, shortest first.

    A little below zero: seen before the writer learned that its commit had happened.
    """
    return sorted(
        (each.seen_at - committed[each.event_id]).total_seconds()
        for each in _first_time(seen)
        if each.event_id in committed
    )


def _first_time(seen: Sequence[Seen]) -> list[Seen]:
    first: dict[UUID, Seen] = {}
    for each in seen:
        first.setdefault(each.event_id, each)
    return list(first.values())


@dataclass(frozen=True, kw_only=True)
class Findings:
    """All that can be said about one listener's reading. ``repr`` has the numbers only."""

    events: int
    lost: Collection[UUID]
    doubled: Collection[UUID]
    ghosts: Collection[UUID]
    key_inversions: Collection[Seen]
    id_inversions: Collection[Seen]
    p50: float
    p90: float
    p99: float

    def __repr__(self) -> str:
        return (
            f"{self.events} events, {len(self.lost)} lost, {len(self.doubled)} doubled,"
            f" {len(self.ghosts)} ghosts, {len(self.key_inversions)} key inversions,"
            f" {len(self.id_inversions)} id inversions,"
            f" seen after {self.p50 * 1000:.0f} ms (p50),"
            f" {self.p90 * 1000:.0f} ms (p90), {self.p99 * 1000:.0f} ms (p99)"
        )

    def broken(self, *, in_id_order: bool = False) -> set[str]:
        """The promises that were not kept: the names of fields, ``p90`` for a delay.

        Behind transactions elsewhere, one after the other, everybody waits: 90 of 100 events up
        to nine tenths of such a transaction. Not p99: a busy machine stands still now and then.
        """
        promised = ["lost", "doubled", "ghosts", "key_inversions"]
        if in_id_order:
            promised.append("id_inversions")
        broken = {name for name in promised if getattr(self, name)}
        return broken | {"p90"} if self.p90 > OPEN_ELSEWHERE / 2 else broken


def compare(
    log: Sequence[Written], seen: Sequence[Seen], committed: Mapping[UUID, datetime]
) -> Findings:
    took = delays(seen, committed) or [0.0]
    return Findings(
        events=len(log),
        lost=lost(log, seen),
        doubled=doubled(seen),
        ghosts=ghosts(log, seen),
        key_inversions=key_inversions(seen),
        id_inversions=id_inversions(seen),
        p50=took[len(took) // 2],
        p90=took[len(took) * 90 // 100],
        p99=took[len(took) * 99 // 100],
    )
