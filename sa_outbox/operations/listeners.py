"""What an operator does to a listener: pause, resume, rewind, skip, retire.

Safe while its consumers run. The consumer of a listener that is moved loses its lease: its events
in flight are not recorded (with a session: rolled back), and it restarts at the new position.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from sa_outbox.errors import ListenerInUse, NotSkipped
from sa_outbox.sql.listener import deliveries
from sa_outbox.sql.log import partitions as log_partitions
from sa_outbox.sql.log.horizon import holders
from sa_outbox.sql.people import listener_changes

from .listener_change import Moving

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from sa_outbox.database.tables import Tables

    from .listener_change import Move, To
    from .operator import Operator


@dataclass(frozen=True, kw_only=True, slots=True)
class Moved:
    """A listener that was moved."""

    name: str
    cursors: tuple[Move, ...]
    deliveries: int = 0
    """Rewound: waiting deliveries that come from the log again."""
    dead_letters: int = 0
    """Rewound: dead letters whose events come again."""
    held_back: int = 0
    """Skipped: ids up to there whose transactions are still open. If they commit, they are
    handled."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Retired:
    """A listener that is gone."""

    name: str
    partitions: int
    deliveries: int
    ranges: int


def pause_listener(
    connection: Connection,
    tables: Tables,
    name: str,
    operator: Operator,
    *,
    channel: str | None = None,
) -> bool:
    """Stop all work on it until it is resumed; what is in flight is finished. False: it was already
    paused. Raises :class:`ListenerNotFound`."""
    return _pause(Moving(connection, tables, name, operator, channel), paused=True)


def resume_listener(
    connection: Connection,
    tables: Tables,
    name: str,
    operator: Operator,
    *,
    channel: str | None = None,
) -> bool:
    """Let it continue. False: it was not paused. Raises :class:`ListenerNotFound`."""
    return _pause(Moving(connection, tables, name, operator, channel), paused=False)


def rewind_listener(
    connection: Connection,
    tables: Tables,
    name: str,
    operator: Operator,
    *,
    to: To | Literal["beginning"],
    channel: str | None = None,
) -> Moved:
    """Make it handle every event again, in order, starting at *to*: an id, a time, or the beginning
    of what is retained. Events it has not handled yet are included, once.

    Waiting deliveries (for a retry, behind another, for their time) and dead letters from there on
    come from the log again; those dead letters are resolved as replayed. What the log can't bring
    back stays as it is: cancelled deliveries, pending replays, edited dead letters, and whatever is
    gone from the log. Raises :class:`ListenerNotFound`.
    """
    moving = Moving(connection, tables, name, operator, channel)
    moving.runner.rows(log_partitions.unchanged(tables))
    rows = moving.lock()
    first = moving.first_id(to)
    why = f"rewound to {first}" + (f": {operator.why}" if operator.why else "")
    one = {"name": name, "from_id": first}
    asked = moving.runner.rows
    (taken,) = asked(listener_changes.dissolve_ranges(tables), name=name)
    asked(listener_changes.give_back_deliveries(tables), name=name)
    forgotten = asked(listener_changes.forget_deliveries(tables), **one)
    letters = asked(
        listener_changes.take_up_dead_letters(tables), **one, who=operator.who, why=why[:1000]
    )
    (elsewhere,) = asked(listener_changes.elsewhere(tables), **one)
    added = f"{{[{first},)}}" if rows else "{}"
    cursors = moving.place(added=added, removed=elsewhere["ids"], kept=taken["ids"])
    moved = Moved(name=name, cursors=cursors, deliveries=len(forgotten), dead_letters=len(letters))
    detail = {"from": first, "deliveries": len(forgotten), "dead_letters": len(letters)}
    moving.record("rewound", detail)
    return moved


def skip_listener(
    connection: Connection,
    tables: Tables,
    name: str,
    operator: Operator,
    *,
    to: To | Literal["now"],
    channel: str | None = None,
) -> Moved:
    """Make it skip every event up to *to* that it has not claimed: up to an id, written before a
    time, or everything there is now.

    Deliveries with a row of their own, events that a queue's process has claimed, and dead letters
    stay. An event below *to* whose transaction is still open is handled when it commits. Runs in
    READ COMMITTED. Raises :class:`ListenerNotFound`.
    """
    moving = Moving(connection, tables, name, operator, channel)
    moving.lock()
    last = moving.last_id(to)
    kept, held_back = "{}", 0
    # In the order of the grace period: the ceiling (in last_id), the writers, then the ids.
    if moving.runner.rows(holders(tables)):
        bounds = {"name": name, "to_id": last}
        (untaken,) = moving.runner.rows(listener_changes.untaken_up_to(tables), **bounds)
        if untaken["first"] is not None:
            (found,) = moving.runner.rows(
                listener_changes.missing(tables), from_id=untaken["first"], to_id=last
            )
            kept, held_back = found["ids"], found["count"]
    cursors = moving.place(removed=f"{{(,{last}]}}", kept=kept)
    moving.record("skipped", {"to": last, "held_back": held_back or None})
    return Moved(name=name, cursors=cursors, held_back=held_back)


def skip_event(
    connection: Connection,
    tables: Tables,
    name: str,
    operator: Operator,
    *,
    position: int | None = None,
    channel: str | None = None,
) -> int:
    """Make it skip one event, by default the one it is stuck at: one that fails, or crashes the
    process, while others wait for it. Returns its position.

    Raises :class:`ListenerNotFound`; :class:`NotSkipped` if there is no such event, or it is
    settled, or a queue is handling it.
    """
    moving = Moving(connection, tables, name, operator, channel)
    stuck: list[int] = [
        each
        for row in moving.lock()
        for each in (row["retry_position"], row["suspect_position"])
        if each is not None
    ]
    if position is None:
        if not stuck:
            raise NotSkipped(f"listener {name!r} is not stuck at an event; name one")
        position = min(stuck)
    asked = moving.runner.rows
    (found,) = asked(listener_changes.find(tables), name=name, position=position)
    waits = found["state"] in ("scheduled", "parked", "behind") and found["range"] is None
    if found["event_id"] is None:
        raise NotSkipped(f"there is no event {position}")
    if waits:
        asked(deliveries.settle(tables), listener=name, positions=[position])
        if found["key"] is not None:
            asked(deliveries.promote(tables), listener=name, keys=[found["key"]])
        moving.place()
    elif found["untaken"]:
        moving.place(removed=f"{{[{position},{position}]}}")
    elif found["in_range"]:
        raise NotSkipped(f"event {position} is being handled; outbox.cancel can ask it to stop")
    else:
        raise NotSkipped(f"listener {name!r} has already settled event {position}")
    identity = {"event_id": found["event_id"], "event_type": found["event_type"]}
    moving.record("skipped", {"position": position}, **identity)
    return position


def retire_listener(
    connection: Connection,
    tables: Tables,
    name: str,
    operator: Operator,
    *,
    force: bool = False,
    channel: str | None = None,
) -> Retired:
    """Remove a listener that is gone forever: its cursors, deliveries and ranges. Its dead letters
    stay, and retention no longer waits for it.

    Raises :class:`ListenerNotFound`; without *force*, :class:`ListenerInUse` while a consumer works
    on it: that consumer would register it again at its next start.
    """
    moving = Moving(connection, tables, name, operator, channel)
    rows = moving.lock()
    if not force and any(row["held"] or row["in_use"] for row in rows):
        raise ListenerInUse(
            f"a consumer works for listener {name!r}: nothing was changed. Stop it, or deploy it "
            "without the listener, first"
        )
    counts = [len(moving.runner.rows(each, name=name)) for each in listener_changes.retire(tables)]
    ranges, waiting, partitions = counts
    moving.record("retired", {"deliveries": waiting, "ranges": ranges})
    return Retired(name=name, partitions=partitions, deliveries=waiting, ranges=ranges)


def _pause(moving: Moving, *, paused: bool) -> bool:
    moving.lock()
    changed = moving.runner.rows(
        listener_changes.pause(moving.tables), name=moving.name, paused=paused
    )
    if changed:
        moving.record("paused" if paused else "resumed")
    return bool(changed)
