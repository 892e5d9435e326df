"""Deliveries that have a row of their own: which wait, for what, and what runs.

The start of a handler is not written, so what runs is known by its lease: which process holds a
listener's cursor, or a range of a queue.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

from sa_outbox.errors import ConfigError
from sa_outbox.sql.log.listener_partitions import listener_names
from sa_outbox.sql.people import deliveries as sql

from .statement_runner import OperatorRunner

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from sqlalchemy import Connection

    from sa_outbox.database.tables import Tables

MAX_LISTED: Final = 1000
"""Maximum size of one page."""
MAX_EXAMINED: Final = 100_000
"""Deliveries after which a page ends even if it is not full: the next one continues from there."""
MAX_CHOICES: Final = 200
"""How many event types and tenants are offered to choose from."""
CHOICES_FROM: Final = 10_000
"""How many deliveries are examined for that."""
State: TypeAlias = Literal["running", "parked", "scheduled", "behind", "cancelled"]
STATES: tuple[State, ...] = get_args(State)


@dataclass(frozen=True, slots=True, order=True)
class DeliveryId:
    """Which delivery: of the event at *position*, for *listener*."""

    listener: str
    position: int

    def __str__(self) -> str:
        return f"{self.position}:{self.listener}"

    @classmethod
    def parse(cls, text: str) -> DeliveryId:
        """From its text, as in ``120481:mail``. Raises :class:`ConfigError`."""
        position, _, listener = text.partition(":")
        known = position.isascii() and position.isdigit() and int(position[:20]) < 2**63
        if not known or not listener or "\x00" in listener:
            raise ConfigError(f"{text!r} is no delivery: POSITION:LISTENER, as in 120481:mail")
        return cls(listener, int(position))


@dataclass(frozen=True, kw_only=True, slots=True)
class DeliveryFilter:
    """Which deliveries to select: all conditions apply; None matches everything."""

    listener: str | None = None
    state: State | None = None
    event_type: str | None = None
    tenant: str | None = None
    key: str | None = None
    failed: bool = False
    """Only those that wait for a retry."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Delivery:
    """One event for one listener, in a row of its own."""

    listener: str
    position: int
    event_id: UUID
    event_type: str
    key: str | None
    tenant: str | None
    priority: int
    state: State
    """``running``: a process of a queue has claimed it."""
    due_at: datetime | None
    attempts: int
    """Failed ones."""
    last_error_code: str | None
    last_error: str | None
    """The first 500 characters."""
    cancel_requested: bool
    cancel_reason: str | None
    dead_letter: int | None
    """Of a replay: the dead letter that it comes from."""
    updated_at: datetime | None
    owner: str | None
    """The process that has claimed it."""

    @property
    def id(self) -> DeliveryId:
        """What ``retry_deliveries`` and ``cancel_deliveries`` take."""
        return DeliveryId(self.listener, self.position)


@dataclass(frozen=True, kw_only=True, slots=True)
class DeliveryPage:
    """Deliveries by listener, then by position."""

    deliveries: tuple[Delivery, ...]
    next_after: DeliveryId | None
    """Pass this as ``after=`` for the next page; None: this was the last page. A page that is not
    full may have a next one: see ``MAX_EXAMINED``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HeldDelivery:
    """The event that a listener with order="total" waits for."""

    listener: str
    partition: int
    position: int
    event_id: UUID | None
    """None: the event is gone from the log."""
    event_type: str | None
    key: str | None
    tenant: str | None
    due_at: datetime | None
    attempts: int
    last_error_code: str | None
    last_error: str | None

    @property
    def id(self) -> DeliveryId:
        """What ``retry_deliveries`` and ``cancel_deliveries`` take."""
        return DeliveryId(self.listener, self.position)


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """A process at work on a listener's cursor."""

    listener: str
    number: int
    """The partition."""
    owner: str
    lease_seconds: float
    position: int


@dataclass(frozen=True, kw_only=True, slots=True)
class DeliveryChoices:
    """What there is to filter by."""

    listeners: tuple[str, ...]
    event_types: tuple[str, ...]
    tenants: tuple[str, ...]


def list_deliveries(
    connection: Connection,
    tables: Tables,
    wanted: DeliveryFilter | None = None,
    *,
    after: DeliveryId | None = None,
    limit: int = 50,
) -> DeliveryPage:
    """A page of deliveries that have a row; *limit* is at most 1000."""
    wanted = wanted or DeliveryFilter()
    given = [
        name
        for name in ("listener", "event_type", "tenant", "key")
        if getattr(wanted, name) is not None
    ]
    values: dict[str, Any] = {name: getattr(wanted, name) for name in given}
    given += [*([wanted.state] if wanted.state else []), *(["failed"] if wanted.failed else [])]
    begin = after or DeliveryId("", 0)
    beyond = {
        "after_listener": begin.listener,
        "after_position": begin.position,
        "examined": MAX_EXAMINED,
    }
    limit = max(1, min(limit, MAX_LISTED))
    runner = OperatorRunner(connection, tables)
    rows = runner.rows(sql.waiting(tables, given), **beyond, limit=limit + 1, **values)
    found = tuple(_delivery(row) for row in rows[:limit])
    if len(rows) > limit:
        return DeliveryPage(deliveries=found, next_after=found[-1].id)
    known = {name: values[name] for name in values if name == "listener"}
    ends = runner.rows(sql.last_examined(tables, given), **beyond, **known)
    return DeliveryPage(
        deliveries=found,
        next_after=DeliveryId(ends[0]["listener"], ends[0]["position"]) if ends else None,
    )


def list_held(connection: Connection, tables: Tables) -> tuple[HeldDelivery, ...]:
    """The events that listeners with order="total" wait for."""
    rows = OperatorRunner(connection, tables).rows(sql.held(tables), limit=MAX_LISTED)
    return tuple(HeldDelivery(**row) for row in rows)


def list_work(connection: Connection, tables: Tables) -> tuple[Work, ...]:
    """Who works on which listener's cursor; for queues see ``list_claimed``."""
    rows = OperatorRunner(connection, tables).rows(sql.working(tables), limit=MAX_LISTED)
    return tuple(Work(**row) for row in rows)


def delivery_choices(
    connection: Connection, tables: Tables, listener: str | None = None
) -> DeliveryChoices:
    """The registered listeners, and the event types and tenants of the first 10,000 deliveries, of
    *listener* if one is named; at most 200 each."""
    runner = OperatorRunner(connection, tables)
    bounds = {"listener": listener, "examined": CHOICES_FROM, "most": MAX_CHOICES}
    names = sorted({row["name"] for row in runner.rows(listener_names(tables))})
    types, tenants = (
        tuple(row["value"] for row in runner.rows(sql.values_of(tables, column), **bounds))
        for column in ("event_type", "tenant")
    )
    return DeliveryChoices(listeners=tuple(names), event_types=types, tenants=tenants)


def _delivery(row: Any) -> Delivery:
    values = dict(row)
    if values.pop("claimed") and values["state"] != "cancelled":
        values["state"] = "running"
    return Delivery(**values)
