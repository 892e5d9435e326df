"""How many events the listeners handled between two overviews."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sa_outbox.sql.people.overview import MAX_COUNTED
from sa_outbox.sql.people.throughput import passed

from .statement_runner import OperatorRunner

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import Connection

    from sa_outbox.database.tables import Tables

    from .overview import Overview


def positions(seen: Overview) -> dict[str, int]:
    """Each listener's position: that of its last partition."""
    return {
        each.name: min(cursor.position for cursor in each.cursors)
        for each in seen.listeners
        if each.cursors
    }


def handled_since(
    connection: Connection, tables: Tables, before: Mapping[str, int], now: Mapping[str, int]
) -> dict[str, float]:
    """Events of its own types that each listener passed from *before* to *now*: events of other
    types that a cursor skipped do not count. Zero for a listener that was rewound.

    Exact where it passed fewer than 1000 events; otherwise extrapolated from the first 1000.
    """
    moved = [name for name in now if before.get(name, now[name]) < now[name]]
    handled = dict.fromkeys(before.keys() & now.keys(), 0.0)
    if not moved:
        return handled
    rows = OperatorRunner(connection, tables).rows(
        passed(tables),
        names=moved,
        lows=[before[name] for name in moved],
        highs=[now[name] for name in moved],
    )
    for row in rows:
        is_cut = row["looked_at"] >= MAX_COUNTED
        handled[row["name"]] = row["own"] * (row["ids"] / MAX_COUNTED if is_cut else 1)
    return handled
