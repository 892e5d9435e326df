"""The view of the backlog, compared with the overview that ``sa-outbox status`` shows."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import Connection, text

from sa_outbox.operations.overview import ListenerOverview, Overview


def agree(connection: Connection, found: Overview) -> None:
    """Fails if the view shows another figure for any listener."""
    rows = connection.execute(text("SELECT * FROM outbox_backlog ORDER BY listener")).mappings()
    seen = {row["listener"]: dict(row) for row in rows}

    assert sorted(seen) == sorted(each.name for each in found.listeners)
    for each in found.listeners:
        row = seen[each.name]
        assert _seconds(row) == pytest.approx(_expected_seconds(each), abs=5), each.name
        due = row.pop("due")
        assert due <= row["parked"] + row["scheduled"]
        assert row == _expected(each), each.name


_SECONDS = ("lag_seconds", "lease_seconds")


def _seconds(row: dict[str, Any]) -> list[float]:
    """Taken out of the row; the two were read one after the other."""
    found = [row.pop(name) for name in _SECONDS]
    return [-1000.0 if each is None else each for each in found]


def _expected_seconds(each: ListenerOverview) -> list[float]:
    return [
        -1000.0 if seconds is None else seconds
        for seconds in (each.lag_seconds, each.lease_seconds)
    ]


def _expected(each: ListenerOverview) -> dict[str, Any]:
    counts = each.deliveries
    return {
        "listener": each.name,
        "partitions": len(each.cursors),
        "waiting": each.lag_events + each.ranges.events,
        "waiting_by_partition": [one.lag_events for one in each.cursors] or None,
        "scheduled": counts.scheduled,
        "parked": counts.parked,
        "behind": counts.behind,
        "next_due_at": counts.next_due_at,
        "dead_letters": each.dead_letters,
        "paused_at": each.paused_at,
        "retry_count": each.retry_count,
        "lease_expired": any(one.lease_expired for one in each.cursors),
        "owners": list(each.owners),
    }
