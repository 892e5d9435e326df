"""The state of everything: the listeners, their backlog, and who works on them.

``overview`` runs the queries; ``overview_of`` builds the result from rows that were read in another
way (``sql/people/overview.py``). Needs no SQLAlchemy unless a connection is passed.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from sa_outbox.sql.people.overview import MAX_COUNTED, clause, questions

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from sqlalchemy import Connection

    from sa_outbox.database.tables import Tables

SKIPPED_WITHIN_SECONDS = 10.0
"""Seconds within which even a busy consumer moves its cursors past what they do not get."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Log:
    """The table of events."""

    first_id: int | None
    """The first retained id; None: the log is empty."""
    last_id: int | None
    most_events: int
    """Ids from the first to the last: an upper bound of the number of events, since ids of rolled
    back transactions are included."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Holder:
    """An open transaction with events: listeners that read strictly in order wait for its end."""

    transaction: str
    pid: int | None
    """None: a prepared transaction."""
    application_name: str
    state: str
    seconds: float
    """How long it has been open. 0 when this role may not see it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AliveConsumer:
    """A process that has announced itself and keeps renewing that."""

    owner: str
    listeners: tuple[str, ...]
    queues: tuple[str, ...]
    started_at: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class Cursor:
    """One partition of a listener."""

    partition: int
    position: int
    """Everything up to here was claimed, except gaps."""
    lag_events: int
    """Events above the position that the listener gets, by its types, its filter and its tenant,
    plus ids in gaps that may be of these. Events of other partitions are included until the cursor
    has passed them, and large payloads whatever the filter. Exact if fewer than 1000 events of any
    type are above the position; otherwise extrapolated from the first 1000. If it gets none of
    these, and they are older than the time in which a consumer skips them, 1: nobody has looked."""
    lag_seconds: float | None
    """Age of the oldest of those events; None: there is none."""
    owner: str | None
    """Who holds it; None: nobody, which is normal for a queue."""
    lease_seconds: float | None
    """Until the lease ends, unless it is renewed."""
    lease_expired: bool
    """Its holder died or hangs, and nobody has taken over yet."""
    retry_count: int
    """``order="total"``: failed attempts of the event it is waiting at."""
    retry_position: int | None
    retry_after: datetime | None
    crashes: int
    last_error_code: str | None
    last_error: str | None
    last_error_at: datetime | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Deliveries:
    """One listener's deliveries that have a row; counted among the first 1000 by position."""

    scheduled: int = 0
    parked: int = 0
    behind: int = 0
    cancelled: int = 0
    next_due_at: datetime | None = None
    complete: bool = True
    """False: there are more than were counted."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ranges:
    """What a queue's processes have claimed and not settled."""

    ranges: int = 0
    free: int = 0
    """Left by a process that died, or released; the next process claims them."""
    events: int = 0
    seconds: float | None = None
    """Age of the oldest event in them."""
    owners: tuple[str, ...] = ()
    """Processes that hold some of them."""
    lease_seconds: float | None = None
    """Until the first of their leases ends, unless it is renewed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ListenerOverview:
    """One listener, as the database has it."""

    name: str
    cursors: tuple[Cursor, ...]
    """Of its partitions, in order; empty for a listener that is gone and left dead letters."""
    paused_at: datetime | None
    deliveries: Deliveries
    ranges: Ranges
    dead_letters: int
    """Unresolved dead letters; at most 1000 are counted."""

    @property
    def lag_events(self) -> int:
        """The largest of its partitions: each counts all partitions' events."""
        return max((each.lag_events for each in self.cursors), default=0)

    @property
    def lag_seconds(self) -> float | None:
        """Age of the oldest event that is above a cursor or held by a range."""
        found = [each.lag_seconds for each in self.cursors] + [self.ranges.seconds]
        return max((each for each in found if each is not None), default=None)

    @property
    def owners(self) -> tuple[str, ...]:
        """Processes that hold a partition, or a range of the queue: host:process:start."""
        found = {each.owner for each in self.cursors if each.owner is not None}
        return tuple(sorted(found.union(self.ranges.owners)))

    @property
    def lease_seconds(self) -> float | None:
        """Until the first of their leases ends, unless it is renewed; None: nobody holds one."""
        found = [each.lease_seconds for each in self.cursors] + [self.ranges.lease_seconds]
        return min((each for each in found if each is not None), default=None)

    @property
    def last_error(self) -> tuple[datetime, str, str] | None:
        """The latest error of the partitions: when, its code, its text."""
        found = [
            (each.last_error_at, each.last_error_code or "", each.last_error or "")
            for each in self.cursors
            if each.last_error_at is not None
        ]
        return max(found, default=None)

    @property
    def retry_count(self) -> int:
        """How often the event at the cursor has failed; of partitions, the highest number."""
        return max((each.retry_count for each in self.cursors), default=0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Overview:
    """Everything, at one moment of the database's clock."""

    at: datetime
    database: str
    role: str
    host: str | None
    """The server's own address; None for a socket."""
    port: int | None
    log: Log
    listeners: tuple[ListenerOverview, ...]
    consumers: tuple[AliveConsumer, ...]
    holders: tuple[Holder, ...]

    @property
    def dead_letters(self) -> int:
        """Unresolved ones, of all listeners."""
        return sum(each.dead_letters for each in self.listeners)


def overview(connection: Connection, tables: Tables) -> Overview:
    """Read the state of everything. Seven cheap statements, whatever the length of the log."""
    from .statement_runner import OperatorRunner  # noqa: PLC0415 - not for plain text

    runner = OperatorRunner(connection, tables)
    asked = questions(tables.names)
    return overview_of({name: runner.rows(clause(each)) for name, each in asked.items()})


def overview_of(answers: Mapping[str, Sequence[Mapping[str, Any]]]) -> Overview:
    """Build the overview from the rows that the queries returned."""
    (log,) = answers["log"]
    return Overview(
        at=log["at"],
        database=log["database"],
        role=log["role"],
        host=log["host"],
        port=log["port"],
        log=_log(log),
        listeners=tuple(
            _listeners(
                answers["cursors"],
                {row["name"]: _deliveries(row) for row in answers["deliveries"]},
                {row["name"]: _ranges(row) for row in answers["ranges"]},
                {row["name"]: row["count"] for row in answers["dead_letters"]},
                log["last_id"] or 0,
            )
        ),
        consumers=tuple(
            AliveConsumer(
                owner=row["owner"],
                listeners=tuple(row["listeners"]),
                queues=tuple(row["queues"]),
                started_at=row["started_at"],
            )
            for row in answers["consumers"]
        ),
        holders=tuple(Holder(**row) for row in answers["holders"]),
    )


def _listeners(
    rows: Iterable[Mapping[str, Any]],
    waiting: Mapping[str, Deliveries],
    taken: Mapping[str, Ranges],
    dead: dict[str, int],
    last_id: int,
) -> Iterable[ListenerOverview]:
    for name, group in groupby(rows, key=lambda row: str(row["name"])):
        partitions = list(group)
        yield ListenerOverview(
            name=name,
            cursors=tuple(_cursor(row, last_id) for row in partitions),
            paused_at=partitions[0]["paused_at"],
            deliveries=waiting.get(name, Deliveries()),
            ranges=taken.get(name, Ranges()),
            dead_letters=dead.pop(name, 0),
        )
    for name, count in sorted(dead.items()):
        yield ListenerOverview(
            name=name,
            cursors=(),
            paused_at=None,
            deliveries=Deliveries(),
            ranges=Ranges(),
            dead_letters=count,
        )


def _cursor(row: Mapping[str, Any], last_id: int) -> Cursor:
    above, age = row["above"], row["age"]
    if row["looked_at"] >= MAX_COUNTED and above:
        # The last id may be older than the count: then the difference would be too low.
        above = max(above, round(above / MAX_COUNTED * (last_id - row["position"])))
    elif row["looked_at"] >= MAX_COUNTED and (row["in_gaps"] or age >= SKIPPED_WITHIN_SECONDS):
        above = 1
    elif row["looked_at"] >= MAX_COUNTED:
        age = None
    held = row["owner"] is not None
    copied = (
        "partition", "position", "owner", "retry_count", "retry_position", "retry_after",
        "crashes", "last_error_code", "last_error", "last_error_at",
    )  # fmt: skip
    return Cursor(
        **{name: row[name] for name in copied},
        lag_events=above + row["in_gaps"],
        lag_seconds=None if age is None else max(0.0, age),
        lease_seconds=row["lease_seconds"] if held else None,
        lease_expired=bool(row["expired"]),
    )


def _deliveries(row: Mapping[str, Any]) -> Deliveries:
    copied = ("scheduled", "parked", "behind", "cancelled", "next_due_at")
    return Deliveries(**{name: row[name] for name in copied}, complete=row["counted"] < MAX_COUNTED)


def _ranges(row: Mapping[str, Any]) -> Ranges:
    seconds = None if row["age"] is None else max(0.0, row["age"])
    copied = {name: row[name] for name in ("ranges", "free", "lease_seconds")}
    return Ranges(**copied, events=row["ids"], seconds=seconds, owners=tuple(row["owners"]))


def _log(row: Mapping[str, Any]) -> Log:
    first, last = row["first_id"], row["last_id"]
    return Log(first_id=first, last_id=last, most_events=0 if last is None else last - first + 1)
