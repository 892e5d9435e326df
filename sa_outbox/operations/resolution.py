"""Resolving dead letters: replay them, discard them, or edit the copy and then replay it.

A replay goes only to the listener that gave the event up, with the event's own id, from the dead
letter's copy: the log may no longer have it, and the copy may have been edited. It becomes a
delivery that is due, so everything that applies to deliveries applies to it: it survives crashes,
later events of its key wait behind it, and if it fails for good it becomes a new dead letter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from sa_outbox.errors import InvalidEvent, NotEdited
from sa_outbox.event.codec import encode
from sa_outbox.event.validation import checked_headers
from sa_outbox.settings import Limits
from sa_outbox.sql.people import resolution as resolving

from .dead_letters import conditions, show_dead_letter
from .edit_check import check_edit
from .operator import wake
from .statement_runner import OperatorRunner

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Connection

    from sa_outbox.database.tables import Tables
    from sa_outbox.policy.admission import Admission

    from .dead_letters import DeadLetter, DeadLetterFilter
    from .operator import Operator

BATCH = 500
"""Dead letters resolved in one transaction."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Position of a dead letter in replay order: by listener, then by log position."""

    listener: str = ""
    position: int = 0
    id: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Chosen:
    """The next batch of dead letters that match a filter."""

    ids: tuple[int, ...]
    last: Place


@dataclass(frozen=True, kw_only=True, slots=True)
class Resolved:
    """What was done."""

    ids: tuple[int, ...]
    left: tuple[int, ...]
    """Not done: resolved by someone else meanwhile, of a listener that the database does not know,
    or (for a replay) the event is already waiting for its listener."""


def newest_dead_letter(connection: Connection, tables: Tables) -> int:
    """A bulk operation ends here: what fails again meanwhile is not included."""
    found: int = OperatorRunner(connection, tables).rows(resolving.newest(tables))[0]["newest"]
    return found


def choose_dead_letters(
    connection: Connection,
    tables: Tables,
    wanted: DeadLetterFilter,
    *,
    newest: int,
    after: Place | None = None,
    limit: int = BATCH,
) -> Chosen:
    """The next batch, in replay order."""
    given, values = conditions(wanted)
    after = after or Place()
    rows = OperatorRunner(connection, tables).rows(
        resolving.in_order(tables, given),
        newest=newest,
        after_listener=after.listener,
        after_position=after.position,
        after_id=after.id,
        limit=limit,
        **values,
    )
    return Chosen(ids=tuple(row["id"] for row in rows), last=Place(**rows[-1]) if rows else after)


def replay_dead_letters(
    connection: Connection,
    tables: Tables,
    ids: Sequence[int],
    operator: Operator,
    *,
    channel: str | None = None,
) -> Resolved:
    """Have these delivered again, each to its listener alone, in the order of the log."""
    runner = OperatorRunner(connection, tables)
    runner.rows(resolving.lock_replays(tables))
    rows = runner.rows(resolving.replay(tables), ids=list(ids), **_named(operator))
    if rows:
        wake(connection, tables, channel)
    return _resolved(ids, rows)


def discard_dead_letters(
    connection: Connection,
    tables: Tables,
    ids: Sequence[int],
    operator: Operator,
    *,
    resolution: Literal["discarded", "fixed"] = "discarded",
) -> Resolved:
    """Discard these, or mark them as fixed. They stay, with who and why."""
    rows = OperatorRunner(connection, tables).rows(
        resolving.discard(tables), ids=list(ids), resolution=resolution, **_named(operator)
    )
    return _resolved(ids, rows)


def edit_dead_letter(
    connection: Connection,
    tables: Tables,
    id: int,  # noqa: A002 - its name
    operator: Operator,
    *,
    edits: int,
    payload: object,
    headers: Mapping[str, Any] | None = None,
    limits: Limits | None = None,
    admission: Admission | None = None,
) -> DeadLetter:
    """Edit the copy that a replay delivers; None keeps the headers.

    *edits* is the edit count of the letter as it was read: if someone else was faster, nothing is
    changed and :class:`NotEdited` is raised. Whatever ``add_event`` refuses is refused here too:
    :class:`InvalidEvent`; also by the outbox's contract and ``check_event``, if its
    ``settings.admission`` is given. The payload's version, a header, is an integer and stays one.
    """
    limits = limits or Limits()
    depth = limits.max_payload_depth
    text = encode(payload, max_bytes=limits.max_payload_bytes, max_depth=depth)
    before = show_dead_letter(connection, tables, id)
    written = before.headers
    if headers is not None:
        most = limits.max_header_bytes
        written = encode(_checked(headers), max_bytes=most, max_depth=depth, field="headers")
    if admission is not None:
        check_edit(admission, before, payload, headers)
    rows = OperatorRunner(connection, tables).rows(
        resolving.edit(tables),
        id=id,
        edits=edits,
        payload=text,
        headers=written,
        **_named(operator),
    )
    if rows:
        return show_dead_letter(connection, tables, id).letter
    letter = show_dead_letter(connection, tables, id).letter
    if letter.resolution is not None:
        raise NotEdited(f"dead letter {id} was {letter.resolution} by {letter.resolved_by}")
    raise NotEdited(f"someone else has edited dead letter {id} since it was read")


def _checked(headers: Mapping[str, Any]) -> dict[str, Any]:
    version = headers.get("version") if isinstance(headers, dict) else None
    if version is not None and (type(version) is not int or version < 1):
        raise InvalidEvent("the header version is not a positive integer", field="headers")
    plain = {name: value for name, value in headers.items() if name != "version"}
    checked: dict[str, Any] = dict(checked_headers(plain))
    return checked if version is None else {**checked, "version": version}


def _named(operator: Operator) -> dict[str, Any]:
    return {"who": operator.who, "why": operator.why}


def _resolved(ids: Sequence[int], rows: Sequence[Mapping[str, Any]]) -> Resolved:
    found = tuple(row["id"] for row in rows)
    chosen = set(found)
    return Resolved(ids=found, left=tuple(each for each in ids if each not in chosen))
