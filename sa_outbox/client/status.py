"""The status of an event for each listener, looked up by its id or its idempotency key."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from ..database.statement_runner import StatementRunner
from ..errors import EventNotFound, WrongArgument
from ..event.type_patterns import matcher
from ..event.types import event_types
from ..event.validation import check_event_type, checked_event_id, checked_text
from ..sql.people.status import status
from .caller import connection_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from sqlalchemy.engine import Connection
    from sqlalchemy.orm import Session

    from ..database.tables import Tables
    from ..declare.declaration import Listeners
    from ..declare.listener import Listener
    from ..settings import Settings

DeliveryState: TypeAlias = Literal[
    "pending", "running", "succeeded", "failed", "dead", "cancelled", "unknown"
]

WEBHOOK: Final = "webhook:"
"""How the names of endpoints' listeners begin."""

_RIGHTS: Final[dict[str, str]] = dict.fromkeys(
    ("", "listeners", "deliveries", "ranges", "dead_letters", "results", "idempotency_keys"),
    "SELECT",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class ListenerStatus:
    """The status of an event for one listener."""

    state: DeliveryState
    """``pending``: not started; due at ``due_at``, if set. ``running``: a process has claimed it.
    ``failed``: it is retried at ``due_at``. ``dead``: given up. ``unknown``: nothing is known,
    because this program does not declare the listener or the event is no longer retained."""
    attempts: int = 0
    """Failed attempts, as far as they are recorded; for a cancelled delivery, attempts that were
    started."""
    due_at: datetime | None = None
    last_error_code: str | None = None
    last_error: str | None = None
    finished_at: datetime | None = None
    """When it was done, given up or cancelled, as far as any row tells. Known for ``dead`` and
    ``cancelled``; for ``succeeded`` only if the handler left a result, or with ``audit="all"``: a
    cursor moves past many events at once and does not note when it passed each."""
    result_ref: str | None = None
    """The reference that the handler left with ``event.leave_result``."""
    cancel_requested: bool = False
    cancel_reason: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class EventStatus:
    """The status of an event."""

    event_id: UUID
    event_type: str | None
    """None when only its id is still known."""
    position: int | None
    """None when it is no longer in the log."""
    created_at: datetime | None
    listeners: Mapping[str, ListenerStatus] = field(default_factory=dict)


def judge(
    row: Mapping[str, Any], listener: Listener | None, *, by_registration: bool = False
) -> ListenerStatus | None:
    """The status, derived from what the tables have on an event and a listener; None if they are
    unrelated. Pure.

    *listener* is None if this program does not declare it: whether it wants the event is then
    unknown, unless it has left a trace; or, *by_registration* and for webhook endpoints, what its
    consumer has registered.
    """
    result = row["result_ref"]
    if row["dead"]:
        return ListenerStatus(
            state="dead",
            attempts=row["dead_attempts"],
            last_error_code=row["dead_code"],
            last_error=row["dead_error"],
            finished_at=row["dead_at"],
        )
    if row["state"] is not None:
        return _with_a_row(row)
    if row["is_held"] is not None:
        return ListenerStatus(state="running" if row["is_held"] else "pending")
    if result is not None:
        return _succeeded(row)
    if row["position"] is None or (
        listener is None and not _registered(row, by_registration=by_registration)
    ):
        return ListenerStatus(state="unknown")
    if not (_is_registered_for(row) if listener is None else _takes(listener, row)):
        return None
    if not row["untaken"]:
        return _succeeded(row)
    if row["held"] and row["retry_count"]:
        return ListenerStatus(
            state="failed",
            attempts=row["retry_count"],
            due_at=row["retry_after"],
            last_error_code=row["held_code"],
            last_error=row["held_error"],
        )
    return ListenerStatus(state="pending")


def _registered(row: Mapping[str, Any], *, by_registration: bool) -> bool:
    """Whether what a consumer has registered says which events the listener wants. For webhook
    endpoints always: no program declares them. Only who may read payloads can tell whether one
    meets a filter."""
    known = row["event_types"] is not None and (by_registration or is_endpoint(row["name"]))
    return known and (row["only_where"] is None or row["reads_payloads"])


def _is_registered_for(row: Mapping[str, Any]) -> bool:
    return (
        matcher(tuple(row["event_types"]))(row["event_type"])
        and row["only_tenant"] in (None, row["tenant"])
        and (row["only_where"] is None or row["only_where"] in row["met"])
    )


def _takes(listener: Listener, row: Mapping[str, Any]) -> bool:
    return listener.takes(row["event_type"], row["met"])


def is_endpoint(listener: str) -> bool:
    """Whether it is the listener of a webhook endpoint, which is stored in the database."""
    return listener.startswith(WEBHOOK)


def _succeeded(row: Mapping[str, Any]) -> ListenerStatus:
    at = row["succeeded_at"] or row["result_at"]
    return ListenerStatus(state="succeeded", finished_at=at, result_ref=row["result_ref"])


def _with_a_row(row: Mapping[str, Any]) -> ListenerStatus:
    said = {
        "attempts": row["attempts"],
        "last_error_code": row["last_error_code"],
        "last_error": row["last_error"],
        "cancel_requested": row["cancel_requested"],
        "cancel_reason": row["cancel_reason"],
    }
    if row["state"] == "cancelled":
        return ListenerStatus(state="cancelled", finished_at=row["changed_at"], **said)
    if row["requested_or_taken"]:
        if row["is_held"]:
            return ListenerStatus(state="running", **said)
        if row["is_held"] is None:
            # A cancellation request that arrived while it was being settled.
            return _succeeded(row)
    state: DeliveryState = "failed" if row["attempts"] else "pending"
    return ListenerStatus(state=state, due_at=row["due_at"], **said)


class Statuses:
    """Looks up statuses for one outbox."""

    def __init__(
        self,
        tables: Tables,
        settings: Settings,
        listeners: Listeners,
        *,
        by_registration: bool = False,
    ) -> None:
        self._by_registration = by_registration
        self._log = tables.outbox
        self._names = settings.names
        self._listeners = listeners
        # Only where there are such records: whoever asks needs the right to read them.
        audited = settings.audit == "all"
        self._statement = status(tables, audited=audited)
        self._filtered = status(tables, filtered=True, audited=audited)
        self._rights = _RIGHTS | ({"audit": "SELECT"} if audited else {})

    def wanted(
        self,
        event_id: UUID | str | None,
        idempotency_key: str | None,
        event_type: str | type | None,
        tenant: str | None,
    ) -> dict[str, Any]:
        """The parameters of the lookup. Raises :class:`WrongArgument` and :class:`InvalidEvent`."""
        if event_id is not None:
            if (idempotency_key, event_type, tenant) != (None, None, None):
                raise WrongArgument(
                    "give event_id alone, or idempotency_key, event_type and tenant",
                    field="event_id",
                )
            found = checked_event_id(event_id)
            return {"event_id": found, "tenant": "", "event_type": "", "key": "", "by_key": False}
        key = checked_text("idempotency_key", idempotency_key)
        if key is None or event_type is None:
            raise WrongArgument(
                "give event_id, or idempotency_key and event_type", field="event_id"
            )
        name = event_types.of(event_type).name if isinstance(event_type, type) else event_type
        check_event_type(name)
        whose = checked_text("tenant", tenant) or ""
        return {"event_id": None, "tenant": whose, "event_type": name, "key": key, "by_key": True}

    def ask(self, place: Session | Connection, wanted: dict[str, Any]) -> EventStatus:
        connection = connection_of(place, self._statement, self._log)
        runner = StatementRunner(connection, self._names, self._rights)
        rows = self._rows(runner, wanted)
        if not rows:
            if wanted["by_key"]:
                raise EventNotFound("no event has this idempotency key, or its lifetime is over")
            raise EventNotFound(f"nothing is known of an event {wanted['event_id']}")
        event_type = next((row["event_type"] for row in rows if row["event_type"]), None)
        return EventStatus(
            event_id=rows[0]["event_id"],
            event_type=event_type or wanted["event_type"] or None,
            position=rows[0]["position"],
            created_at=next((row["created_at"] for row in rows if row["created_at"]), None),
            listeners=MappingProxyType(self._by_listener(rows)),
        )

    def _rows(self, runner: StatementRunner, wanted: dict[str, Any]) -> Sequence[Mapping[str, Any]]:
        """Asked again with the filters of listeners that are judged by their registration, if there
        are some: without filters, the right to read payloads is not needed."""
        filters = self._listeners.filters
        rows = self._ask(runner, wanted, filters)
        if more := self._registered_filters(rows).difference(filters):
            rows = self._ask(runner, wanted, [*filters, *sorted(more)])
        return rows

    def _ask(
        self, runner: StatementRunner, wanted: dict[str, Any], filters: Sequence[str]
    ) -> Sequence[Mapping[str, Any]]:
        if filters:
            return runner.rows(self._filtered, **wanted, filters=filters)
        return runner.rows(self._statement, **wanted)

    def _registered_filters(self, rows: Sequence[Mapping[str, Any]]) -> set[str]:
        return {
            row["only_where"]
            for row in rows
            if row["only_where"] is not None
            and row["position"] is not None
            and row["name"] not in self._listeners
            and _registered(row, by_registration=self._by_registration)
        }

    def _by_listener(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, ListenerStatus]:
        declared = {each.name: each for each in self._listeners}
        found: dict[str, ListenerStatus] = {}
        for row in rows:
            name: str | None = row["name"]
            if name is None:
                continue
            judged = judge(row, declared.get(name), by_registration=self._by_registration)
            if judged is not None:
                found[name] = judged
        if rows[0]["position"] is not None:
            registered = {row["name"] for row in rows}
            for name in declared.keys() - registered:
                if declared[name].takes(rows[0]["event_type"], rows[0]["met"]):
                    begins = declared[name].start == "beginning"
                    found[name] = ListenerStatus(state="pending" if begins else "unknown")
        return found
