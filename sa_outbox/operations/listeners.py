"""What a person does to a listener: pause, resume, rewind, skip, retire.

Correct while its consumers run. Whoever works for a listener that is moved loses its lease: what it
has in hand is not recorded (with a session: rolled back), and it begins again at the new place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from sa_outbox.errors import ListenerInUse, NotSkipped
from sa_outbox.sql import deliveries, operating
from sa_outbox.sql.horizon import holders

from .moving import Moving

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from sa_outbox.tables import Tables

    from .moving import Move, To
    from .operator import Operator


@dataclass(frozen=True, kw_only=True, slots=True)
class Moved:
    """A listener that was moved."""

    name: str
    cursors: tuple[Move, ...]
    deliveries: int = 0
    """Rewound: deliveries that waited and come with the log again."""
    dead_letters: int = 0
    """Rewound: dead letters whose events come again."""
    held_back: int = 0
    """Skipped: ids up to there of transactions that are open. If they commit, they are handled."""


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
    """Have nobody work for it until it is resumed; what is in hand is finished. False: it was
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
    """Let it go on. False: it was not paused. Raises :class:`ListenerNotFound`."""
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
    """Have it handle again, in order, every event from *to* on: an id, a time, or the beginning of
    what is retained. What it has not handled yet comes as well, once.

    Deliveries that wait (for a retry, behind another, for their time) and dead letters from there
    on come with the log; those dead letters are resolved as replayed. In its place stays what the
    log can't bring: what was cancelled, replays that are pending, dead letters that were edited,
    and whatever is gone from the log. Raises :class:`ListenerNotFound`.
    """
    moving = Moving(connection, tables, name, operator, channel)
    rows = moving.lock()
    first = moving.first_id(to)
    why = f"rewound to {first}" + (f": {operator.why}" if operator.why else "")
    one = {"name": name, "from_id": first}
    asked = moving.asking.rows
    (taken,) = asked(operating.dissolve_ranges(tables), name=name)
    asked(operating.give_back_deliveries(tables), name=name)
    forgotten = asked(operating.forget_deliveries(tables), **one)
    letters = asked(operating.take_up_dead_letters(tables), **one, who=operator.who, why=why[:1000])
    (elsewhere,) = asked(operating.elsewhere(tables), **one)
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
    """Have it pass by every event up to *to* that it has not taken: up to an id, written before a
    time, or all there is now.

    What has a row of its own (a delivery that waits), what a process of a queue has taken, and dead
    letters stay. An event below that whose transaction is still open is handled when it commits.
    In READ COMMITTED. Raises :class:`ListenerNotFound`.
    """
    moving = Moving(connection, tables, name, operator, channel)
    moving.lock()
    last = moving.last_id(to)
    kept, held_back = "{}", 0
    # In the order of the grace period: the ceiling (in last_id), the writers, then the ids.
    if moving.asking.rows(holders(tables)):
        bounds = {"name": name, "to_id": last}
        (untaken,) = moving.asking.rows(operating.untaken_up_to(tables), **bounds)
        if untaken["first"] is not None:
            (found,) = moving.asking.rows(
                operating.missing(tables), from_id=untaken["first"], to_id=last
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
    """Have it pass by one event, by default the one it is stuck at: that fails, or kills the
    process, and that the others wait for. Returns its position.

    Raises :class:`ListenerNotFound`; :class:`NotSkipped` if there is no such event, or it is
    settled, or being handled by a queue.
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
            raise NotSkipped(f"listener {name!r} is not stuck at an event; say which one")
        position = min(stuck)
    asked = moving.asking.rows
    (found,) = asked(operating.find(tables), name=name, position=position)
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
        raise NotSkipped(f"event {position} is being handled; outbox.cancel asks for its end")
    else:
        raise NotSkipped(f"listener {name!r} is done with event {position}")
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
    """Forget a listener that is gone for ever: its cursors, deliveries and ranges. Its dead letters
    stay, and retention waits for it no longer.

    Raises :class:`ListenerNotFound`; without *force*, :class:`ListenerInUse` while a consumer works
    for it: that would make it anew at its next start.
    """
    moving = Moving(connection, tables, name, operator, channel)
    rows = moving.lock()
    if not force and any(row["held"] or row["in_use"] for row in rows):
        raise ListenerInUse(
            f"a consumer works for listener {name!r}: nothing was changed. Stop it, or deploy it "
            "without the listener, first"
        )
    counts = [len(moving.asking.rows(each, name=name)) for each in operating.retire(tables)]
    ranges, waiting, partitions = counts
    moving.record("retired", {"deliveries": waiting, "ranges": ranges})
    return Retired(name=name, partitions=partitions, deliveries=waiting, ranges=ranges)


def _pause(moving: Moving, *, paused: bool) -> bool:
    moving.lock()
    changed = moving.asking.rows(operating.pause(moving.tables), name=moving.name, paused=paused)
    if changed:
        moving.record("paused" if paused else "resumed")
    return bool(changed)
