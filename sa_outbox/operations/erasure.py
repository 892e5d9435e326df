"""Erase one event: personal data that has to go before its retention ends."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sa_outbox.errors import EventNotFound, NotErased
from sa_outbox.event.validation import checked_event_id
from sa_outbox.sql.listener import deliveries
from sa_outbox.sql.log.partitions import unchanged
from sa_outbox.sql.people import erasure

from .operator import wake
from .statement_runner import OperatorRunner

if TYPE_CHECKING:
    from uuid import UUID

    from sqlalchemy import Connection

    from sa_outbox.database.tables import Tables

    from .operator import Operator

_RIGHTS: Final = {
    "": "SELECT, DELETE",
    "listeners": "SELECT, UPDATE",
    "deliveries": "SELECT, UPDATE, DELETE",
    "ranges": "SELECT, UPDATE",
    "dead_letters": "SELECT, DELETE",
    "results": "SELECT, DELETE",
    "idempotency_keys": "SELECT, DELETE",
    "audit": "INSERT",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Erased:
    """An event, and how many copies of it existed."""

    event_id: UUID
    position: int
    event_type: str
    unhandled: tuple[str, ...]
    """Listeners that had not passed it, or for which it waited: they never get it."""
    deliveries: int
    dead_letters: int
    results: int
    keys: int
    """Its idempotency keys. Kept unless their erasure is requested."""


def erase_event(
    connection: Connection,
    tables: Tables,
    operator: Operator,
    *,
    event_id: UUID | str | None = None,
    position: int | None = None,
    keys: bool = False,
    dry_run: bool = False,
    channel: str | None = None,
) -> Erased:
    """Erase one event, by its *event_id* or its *position* (its id in the log), from the log, along
    with its deliveries, dead letters and results; with *keys*, its idempotency keys too. The audit
    records that it was erased, by whom and why, and nothing of its content.

    Listeners that have not handled it never get it; whatever waited behind it continues. With
    *dry_run*, only report what would be erased. Runs in READ COMMITTED.

    Raises :class:`EventNotFound`; :class:`NotErased` if a consumer may be handling it right now.
    """
    asked = OperatorRunner(connection, tables, _RIGHTS).rows
    asked(unchanged(tables))
    found = _find(asked, tables, event_id, position)
    where, identity = {"position": found["position"]}, {"event_id": found["event_id"]}
    (counts,) = asked(erasure.count(tables), **identity)
    listeners = asked(erasure.lock_listeners(tables), **where)
    ranges = asked(erasure.lock_ranges(tables), **where)
    asked(erasure.lock_deliveries(tables), **where)
    waiting = asked(erasure.waiting(tables), **where)
    _check(found, listeners, ranges, waiting)
    unhandled = {each["name"] for each in listeners if each["untaken"]}
    unhandled |= {each["listener"] for each in (*ranges, *waiting)}
    erased = Erased(
        event_id=found["event_id"],
        position=found["position"],
        event_type=found["event_type"],
        unhandled=tuple(sorted(unhandled)),
        deliveries=len(waiting),
        **counts,
    )
    if dry_run:
        return erased
    for statement in (erasure.forget_errors(tables), *erasure.erase(tables, keys=keys)):
        asked(statement, **identity, **where)
    for each in waiting:
        if each["key"] is not None:
            promoted = {"listener": each["listener"], "keys": [each["key"]]}
            asked(deliveries.promote(tables), **promoted)
    asked(erasure.pass_by(tables), **where)
    asked(
        erasure.record(tables),
        **identity,
        event_type=found["event_type"],
        who=operator.who,
        detail=json.dumps(_detail(erased, operator)),
    )
    wake(connection, tables, channel)
    return erased


def _find(asked: Any, tables: Tables, event_id: UUID | str | None, position: int | None) -> Any:
    by_position = position is not None
    if not by_position and event_id is None:
        raise EventNotFound("pass the event_id, or the event's id in the log")
    wanted: dict[str, Any] = {"position": position}
    if event_id is not None and not by_position:
        wanted = {"event_id": checked_event_id(event_id)}
    rows = asked(erasure.find(tables, by_position=by_position), **wanted)
    if not rows:
        rows = asked(erasure.find_copy(tables, by_position=by_position), **wanted)
    if not rows:
        ((name, value),) = wanted.items()
        raise EventNotFound(
            f"the log has no event with {name} {value}, and no delivery, dead letter or result has"
        )
    if rows[0]["is_moving"]:
        raise NotErased(
            f"event {rows[0]['position']} is being copied from the catch-all to a partition of its "
            "own: nothing was changed. Run sa-outbox prune, then retry"
        )
    return rows[0]


def _check(found: Any, listeners: Any, ranges: Any, waiting: Any) -> None:
    """Raise if a consumer may be handling it: with the event in memory, it would continue."""
    held = {each["name"] for each in listeners if each["is_held"]}
    names = {each["name"] for each in listeners if each["is_held"] and each["untaken"]}
    names |= {each["listener"] for each in ranges if each["is_held"]}
    names |= {each["listener"] for each in waiting if each["is_due"] and each["listener"] in held}
    if names:
        who = ", ".join(sorted(names))
        raise NotErased(
            f"a consumer works for {who} and may be handling event {found['position']} right now: "
            "nothing was changed. Wait until it is settled, or pause the listener first "
            "(sa-outbox listeners pause NAME), which lets it finish what it has begun"
        )


def _detail(erased: Erased, operator: Operator) -> dict[str, Any]:
    return {
        "position": erased.position,
        "unhandled": list(erased.unhandled) or None,
        "deliveries": erased.deliveries,
        "dead_letters": erased.dead_letters,
        "results": erased.results,
        "why": operator.why,
    }
