"""One event's causation as a tree: what caused it, what it caused, and how each of them is.

Bounded on every side. Upwards by a number of steps. Downwards by the ids that are examined above
the event, by events, and by levels: handlers add their events soon after they were called, so what
is further away than that is reported as not examined, not as missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias
from uuid import UUID

from sa_outbox.errors import EventNotFound
from sa_outbox.event.causation import tree_name
from sa_outbox.event.validation import checked_event_id
from sa_outbox.sql.people import causation as sql

from .statement_runner import OperatorRunner

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from sqlalchemy import Connection

    from sa_outbox.client.status import DeliveryState, ListenerStatus
    from sa_outbox.database.tables import Tables
    from sa_outbox.declare.declaration import Listeners

MAX_CAUSES: Final = 10
"""Events above the one in question."""
MAX_CAUSED: Final = 40
"""Events below it: each costs a query for its status."""
MAX_LEVELS: Final = 10
"""Levels below it."""
MAX_EXAMINED: Final = 100_000
"""Ids above it among which they are searched."""
State: TypeAlias = "DeliveryState | Literal['no listener']"
_WORST_FIRST: Final[tuple[DeliveryState, ...]] = (
    "dead", "failed", "running", "pending", "unknown", "cancelled", "succeeded",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class CausedEvent:
    """An event in the tree, and what it caused."""

    event_id: UUID
    event_type: str
    position: int
    created_at: datetime
    state: State
    """The worst of its states for any listener."""
    caused: tuple[CausedEvent, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Causation:
    """What led to one event, and what it led to."""

    causes: tuple[CausedEvent, ...]
    """The first one first; ends with the direct cause. Without what they caused otherwise."""
    event: CausedEvent
    lost_cause: UUID | None
    """The cause of the first one, which is no longer in the log."""
    is_cut: bool
    """There is more than is in here: further up, further down, or further in the log."""


def causation_of(
    connection: Connection,
    tables: Tables,
    event_id: UUID | str,
    *,
    listeners: Listeners | None = None,
) -> Causation:
    """The tree around one event that is in the log. *listeners* as in ``show_event``. Raises
    :class:`EventNotFound`."""
    runner = OperatorRunner(connection, tables, {"": "SELECT"})
    rows = runner.rows(sql.one(tables), event_id=checked_event_id(event_id))
    if not rows:
        raise EventNotFound(f"the event {event_id} is not in the log: its causation is not known")
    event = rows[0]
    above, lost, cut_above = _above(runner, tables, event)
    below, cut_below = _below(runner, tables, event)
    states = _States(connection, tables, listeners)
    return Causation(
        causes=tuple(_caused(each, states, {}, 0) for each in above),
        event=_caused(event, states, below, MAX_LEVELS),
        lost_cause=lost,
        is_cut=cut_above or cut_below,
    )


def worst_of(statuses: Iterable[ListenerStatus]) -> State:
    found: set[DeliveryState] = {each.state for each in statuses}
    return min(found, key=_WORST_FIRST.index) if found else "no listener"


def _above(
    runner: OperatorRunner, tables: Tables, event: Mapping[str, Any]
) -> tuple[list[Mapping[str, Any]], UUID | None, bool]:
    found: list[Mapping[str, Any]] = []
    cause = _uuid(event["cause"])
    seen = {event["event_id"]}
    while cause is not None and cause not in seen:  # a caller may have written a circle
        if len(found) == MAX_CAUSES:
            return found[::-1], None, True
        rows = runner.rows(sql.one(tables), event_id=cause)
        if not rows:
            return found[::-1], cause, False
        found.append(rows[0])
        seen.add(cause)
        cause = _uuid(rows[0]["cause"])
    return found[::-1], None, False


def _below(
    runner: OperatorRunner, tables: Tables, event: Mapping[str, Any]
) -> tuple[dict[UUID, list[Mapping[str, Any]]], bool]:
    """Its descendants, by their cause."""
    name = tree_name(event["event_id"], event["tree"])
    rows = runner.rows(
        sql.of_tree(tables),
        position=event["position"],
        examined=MAX_EXAMINED,
        tree=f"{name}:",
        limit=MAX_CAUSED + 1,
    )
    levels = {event["event_id"]: 0}
    found: dict[UUID, list[Mapping[str, Any]]] = {}
    is_cut = len(rows) > MAX_CAUSED
    for row in rows[:MAX_CAUSED]:  # a cause is always before what it caused
        cause = _uuid(row["cause"])
        if cause is None or cause not in levels:
            continue  # of another branch of the tree
        if levels[cause] == MAX_LEVELS:
            is_cut = True
            continue
        levels[row["event_id"]] = levels[cause] + 1
        found.setdefault(cause, []).append(row)
    return found, is_cut


def _caused(
    row: Mapping[str, Any],
    states: _States,
    below: Mapping[UUID, list[Mapping[str, Any]]],
    levels: int,
) -> CausedEvent:
    inside = below.get(row["event_id"], []) if levels else []
    return CausedEvent(
        event_id=row["event_id"],
        event_type=row["event_type"],
        position=row["position"],
        created_at=row["created_at"],
        state=states.of(row["event_id"]),
        caused=tuple(_caused(each, states, below, levels - 1) for each in inside),
    )


class _States:
    """The state of each event, asked one by one."""

    def __init__(self, connection: Connection, tables: Tables, listeners: Listeners | None) -> None:
        from sa_outbox.client.status import Statuses  # noqa: PLC0415 - a list of events needs none
        from sa_outbox.declare.declaration import Listeners  # noqa: PLC0415
        from sa_outbox.settings import Settings  # noqa: PLC0415

        declared = Listeners() if listeners is None else listeners
        settings = Settings(names=tables.names)
        self._statuses = Statuses(tables, settings, declared, by_registration=True)
        self._connection = connection

    def of(self, event_id: UUID) -> State:
        wanted = self._statuses.wanted(event_id, None, None, None)
        return worst_of(self._statuses.ask(self._connection, wanted).listeners.values())


def _uuid(text: str | None) -> UUID | None:
    """Of a header: anybody may have written it."""
    try:
        return None if text is None else UUID(text)
    except ValueError:
        return None
