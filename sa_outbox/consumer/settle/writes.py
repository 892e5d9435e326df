"""The statements that settle events: the cursor, parked deliveries, dead letters. Pure.

The statement that moves the cursor comes last. It names the lease's token and the old position:
when it finds no row, the lease is lost and the whole transaction is rolled back.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sa_outbox.event.row import ID, KEY
from sa_outbox.policy.delivery import OUTCOMES, IllegalMove, is_legal

from ..position.gaps import NO_GAPS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..connection.connections import Query
    from ..connection.statements import Settling
    from ..handler.delivery import InFlight
    from ..lease.lease import Lease
    from ..position.progress import Saved

_WITH_A_ROW = frozenset({"parked", "behind", "scheduled", "cancelled"})
_OF_WHAT_IS_LEFT = ("position", "gaps")


@dataclass(frozen=True, slots=True)
class Write:
    """A statement with its values."""

    query: Query
    values: dict[str, Any]
    fenced: bool = False
    """It must find the row of the lease."""
    alerts: int = 0
    """How many alerts it adds to the log."""


def plan(
    statements: Settling,
    lease: Lease,
    items: Sequence[InFlight],
    *,
    old: Saved,
    new: Saved,
    holding: bool = False,
) -> list[Write]:
    """The statements that settle *items* and move the cursor from *old* to *new*, in order.

    *holding*: another event waits for its next attempt, and its errors are in the listener's row.

    Raises :class:`IllegalMove`. That an event without a row is done needs no check.
    """
    # Of these more is to be written than the cursor.
    special = [
        item for item in items if item.outcome != "done" or item.state or item.result is not None
    ]
    for item in special:
        if not is_legal(item.state_before, item.outcome):
            raise IllegalMove(item.state_before, item.outcome)
    writes = _of_their_own(statements, lease, special) if special else []
    moved = {
        **lease.term,
        "old": old.position,
        "revision": old.revision,
        "position": new.position,
        "gaps": new.gaps,
    }
    forget = bool(items) and not holding
    writes.append(_move(statements, special, moved, forget=forget))
    return writes


def insert_record(
    writes: list[Write], statements: Settling, listener: str, recorded: list[dict[str, Any]]
) -> None:
    """What the audit says of them: after they are parked, since one that is cancelled meanwhile is
    not retried. And before a row is deleted, from which a replay has its event."""
    first = (statements.bury, statements.park)
    at = sum(write.query in first for write in writes)
    document = json.dumps(recorded)
    writes.insert(at, Write(statements.record, {"listener": listener, "document": document}))


def _of_their_own(statements: Settling, lease: Lease, items: Sequence[InFlight]) -> list[Write]:
    """What is written of these, without the cursor."""
    listener = lease.listener
    writes: list[Write] = []
    dead = [item for item in items if item.outcome == "dead"]
    if dead:
        document = json.dumps([_buried(item) for item in dead])
        writes.append(Write(statements.bury, {"listener": listener, "document": document}))
    parked = [item for item in items if OUTCOMES[item.outcome].state in _WITH_A_ROW]
    if parked:
        document = json.dumps([_parked(item) for item in parked])
        whose = {"listener": listener, "part": lease.partition}
        writes.append(Write(statements.park, {**whose, "document": document}))
    gone = [item.row[ID] for item in items if item.state and item.outcome in ("done", "dead")]
    if gone:
        writes.append(Write(statements.settle, {"listener": listener, "positions": gone}))
    results = [_left(item) for item in items if item.outcome == "done" and item.result is not None]
    if results:
        document = json.dumps(results)
        writes.append(Write(statements.leave_results, {"listener": listener, "document": document}))
    keys = sorted(
        {
            item.row[KEY]
            for item in items
            if item.row[KEY] is not None
            and (item.state or OUTCOMES[item.outcome].state in _WITH_A_ROW)
        }
    )
    if keys and statements.promote is not None:
        writes.append(Write(statements.promote, {"listener": listener, "keys": keys}))
    failures = [
        item.failure for item in items if item.failure is not None and item.outcome != "hold"
    ]
    if failures:
        error = {"code": failures[-1].code, "message": failures[-1].message}
        writes.append(Write(statements.remember_error, {**_named(lease), **error}))
    return writes


def _named(lease: Lease) -> dict[str, Any]:
    return {"name": lease.listener, "part": lease.part, "token": lease.token}


def _move(
    statements: Settling, items: Sequence[InFlight], values: dict[str, Any], *, forget: bool
) -> Write:
    for item in items:
        if item.outcome == "hold" and item.failure is not None and statements.hold is not None:
            failure = item.failure
            values |= {
                "held": item.row[ID],
                "retry_count": item.attempts,
                "delay": item.delay,
                "failure": json.dumps(failure.as_json()),
                "code": failure.code,
                "message": failure.message,
            }
            return Write(statements.hold, values, fenced=True)
    if statements.finish is not None and values["gaps"] == NO_GAPS:
        kept = {key: each for key, each in values.items() if key not in _OF_WHAT_IS_LEFT}
        return Write(statements.finish, kept, fenced=True)
    return Write(statements.advance if forget else statements.save, values, fenced=True)


def _parked(item: InFlight) -> dict[str, Any]:
    waits = item.outcome in ("park", "schedule")
    return {
        "position": item.row[ID],
        "state": OUTCOMES[item.outcome].state,
        "delay": item.delay if waits else None,
        "attempts": item.attempts,
        "failure": None if item.failure is None else item.failure.as_json(),
    }


def _left(item: InFlight) -> dict[str, Any]:
    assert item.result is not None  # noqa: S101 - for the type checker
    reference, lifetime = item.result
    return {"event_id": str(item.event_id), "result_ref": reference, "lifetime": lifetime}


def _buried(item: InFlight) -> dict[str, Any]:
    return {
        **{f"no_{part}": True for part in item.without},
        "position": item.row[ID],
        "reason": item.reason,
        "attempts": item.attempts,
        "crashes": item.crashes,
        "failure": None if item.failure is None else item.failure.as_json(),
    }
