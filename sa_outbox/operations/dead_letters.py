"""Inspecting dead letters: deliveries that were given up, each with its copy of the event."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from sa_outbox.errors import DeadLetterNotFound
from sa_outbox.policy.error.stored_errors import parse_errors
from sa_outbox.sql.people import searches

from .statement_runner import OperatorRunner

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from uuid import UUID

    from sqlalchemy import Connection

    from sa_outbox.database.tables import Tables

MAX_LISTED = 1000
"""Maximum size of one page."""
Resolution: TypeAlias = Literal["open", "replayed", "discarded", "fixed", "any"]
_LAST: Final = 2**63 - 1
_CONDITIONS: Final = (
    "listener", "key", "tenant", "reason", "code", "fingerprint", "event_id", "since", "until",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class DeadLetterFilter:
    """Which dead letters to select: all conditions apply; None and the empty tuple match
    everything."""

    listener: str | None = None
    types: tuple[str, ...] = ()
    """Event types, ``*`` for any run of characters; any of them."""
    key: str | None = None
    tenant: str | None = None
    reason: str | None = None
    """``attempts``, ``rejected``, ``final``, ``crashes`` or ``refused``."""
    code: str | None = None
    """Code of the last error."""
    fingerprint: str | None = None
    """Fingerprint of the last error."""
    event_id: UUID | None = None
    since: datetime | None = None
    """Given up at this time or later."""
    until: datetime | None = None
    """Given up before this time."""
    resolution: Resolution = "open"
    """``open``: unresolved."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DeadLetter:
    """A delivery that was given up, without the event's payload."""

    id: int
    listener: str
    position: int
    event_id: UUID
    event_type: str
    key: str | None
    tenant: str | None
    event_created_at: datetime
    run_at: datetime | None
    priority: int
    reason: str
    attempts: int
    crashes: int
    error_code: str | None
    """Code of the last attempt's error."""
    error_message: str | None
    error_fingerprint: str | None
    """What is the same for all that failed with the same error class at the same place."""
    failed_at: datetime
    resolution: str | None
    """None: unresolved. Otherwise ``replayed``, ``discarded`` or ``fixed``."""
    resolved_at: datetime | None
    resolved_by: str | None
    resolved_why: str | None
    edits: int
    """How many times its copy of the event was edited."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DeadLetterDetail:
    """A dead letter with its copy of the event, and every error."""

    letter: DeadLetter
    payload: str
    """JSON, as it would be replayed."""
    headers: str
    errors: tuple[Mapping[str, Any], ...]
    """Errors of the attempts, oldest first: attempt, at, error (its class), code, message, causes,
    fingerprint, traceback. Each but the attempt may be missing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DeadLetterPage:
    """Dead letters, newest first."""

    letters: tuple[DeadLetter, ...]
    next_before: int | None
    """Pass this as ``before=`` for the next page; None: this was the last page."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DeadLetterGroup:
    """Dead letters whose last errors have the same fingerprint."""

    error_fingerprint: str | None
    """None: of errors that were stored without one."""
    count: int
    first_at: datetime
    last_at: datetime
    """When the first and the last of them were given up."""
    listeners: tuple[str, ...]
    """Up to ten, those with the most first."""
    listener_count: int
    sample: int
    """Id of the newest of them. What follows is of that one."""
    event_type: str
    error_class: str | None
    error_code: str | None
    error_message: str | None
    """Its beginning."""


def list_dead_letters(
    connection: Connection,
    tables: Tables,
    wanted: DeadLetterFilter | None = None,
    *,
    before: int | None = None,
    limit: int = 50,
) -> DeadLetterPage:
    """A page of dead letters, newest first; *limit* is at most 1000."""
    given, values = conditions(wanted or DeadLetterFilter())
    limit = max(1, min(limit, MAX_LISTED))
    rows = OperatorRunner(connection, tables).rows(
        searches.dead_letters(tables, given),
        beyond=_LAST if before is None else before,
        limit=limit + 1,
        **values,
    )
    more = len(rows) > limit
    letters = tuple(DeadLetter(**row) for row in rows[:limit])
    return DeadLetterPage(letters=letters, next_before=letters[-1].id if more else None)


def count_dead_letters(
    connection: Connection,
    tables: Tables,
    wanted: DeadLetterFilter | None = None,
    *,
    most: int = 1_000_000,
) -> int:
    """How many there are; *most* means that many or more."""
    given, values = conditions(wanted or DeadLetterFilter())
    rows = OperatorRunner(connection, tables).rows(
        searches.count_dead_letters(tables, given), most=most, **values
    )
    count: int = rows[0]["count"]
    return count


def group_dead_letters(
    connection: Connection,
    tables: Tables,
    wanted: DeadLetterFilter | None = None,
    *,
    limit: int = 50,
) -> tuple[DeadLetterGroup, ...]:
    """Dead letters by error, the largest groups first; *limit* is at most 1000."""
    given, values = conditions(wanted or DeadLetterFilter())
    limit = max(1, min(limit, MAX_LISTED))
    rows = OperatorRunner(connection, tables).rows(
        searches.dead_letter_groups(tables, given), limit=limit, **values
    )
    return tuple(DeadLetterGroup(**{**row, "listeners": tuple(row["listeners"])}) for row in rows)


def show_dead_letter(connection: Connection, tables: Tables, id: int) -> DeadLetterDetail:  # noqa: A002 - its name
    """One dead letter with its copy of the event. Raises :class:`DeadLetterNotFound`."""
    rows = OperatorRunner(connection, tables).rows(searches.dead_letter(tables), id=id)
    if not rows:
        raise DeadLetterNotFound(f"there is no dead letter {id}")
    row = dict(rows[0])
    texts = {name: row.pop(name) for name in ("payload", "headers", "errors")}
    return DeadLetterDetail(
        letter=DeadLetter(**row),
        payload=texts["payload"],
        headers=texts["headers"],
        errors=parse_errors(texts["errors"]),
    )


def conditions(wanted: DeadLetterFilter) -> tuple[list[str], dict[str, Any]]:
    """The names of the conditions, and the values of their parameters."""
    given = [name for name in _CONDITIONS if getattr(wanted, name) is not None]
    values: dict[str, Any] = {name: getattr(wanted, name) for name in given}
    if wanted.types:
        given.append("types")
        values |= searches.patterns(wanted.types)
    if wanted.resolution == "open":
        given.append("open")
    elif wanted.resolution != "any":
        given.append("resolution")
        values["resolution"] = wanted.resolution
    return given, values
