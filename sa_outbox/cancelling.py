"""Cancelling an event: not started, it never starts; running, its handler is asked to give up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from .arguments import checked_event_id, checked_text
from .codec import encode_plain
from .errors import ConfigError, EventNotFound, NotAtomic
from .place import Asking, connection_of
from .producer import internals
from .sql import audit, cancelling
from .sql.notify import notify

if TYPE_CHECKING:
    from collections.abc import Iterable
    from uuid import UUID

    from sqlalchemy.engine import Connection
    from sqlalchemy.orm import Session

    from .listener import Listener, Listeners
    from .settings import Settings
    from .tables import Tables

Answer: TypeAlias = Literal["cancelled", "requested", "done", "dead", "ordered", "unknown"]
"""What ``cancel`` has reached for a listener. ``cancelled``: it never starts, or never again.
``requested``: it runs, or is about to; its holder is asked. ``done``, ``dead``: too late.
``ordered``: the listener keeps an order, in which the event has its place. ``unknown``: the
database does not know the listener yet."""

CANCEL: Final = "cancel"
"""Message of the NOTIFY that tells consumers to look at what they are asked to cancel."""
MAX_REASON_BYTES: Final = 1000
_RIGHTS: Final = {
    "": "SELECT",
    "listeners": "SELECT, UPDATE",
    "deliveries": "SELECT, INSERT, UPDATE",
    "ranges": "SELECT",
    "dead_letters": "SELECT",
}


class Cancelling:
    """Cancels events of one outbox, in the caller's transaction."""

    def __init__(self, tables: Tables, settings: Settings, listeners: Listeners) -> None:
        self._settings = settings
        self._listeners = listeners
        self._find = cancelling.find(tables)
        self._withdraw = cancelling.withdraw(tables)
        self._is_registered = cancelling.is_registered(tables)
        self._insert_cancelled = cancelling.insert_cancelled(tables)
        self._lock = cancelling.lock(tables)
        self._cancel_waiting = cancelling.cancel_waiting(tables)
        self._cancel_scheduled = cancelling.cancel_scheduled(tables)
        self._range_of = cancelling.range_of(tables)
        self._request = cancelling.request(tables)
        self._dead = cancelling.dead(tables)
        self._record = audit.record(tables)
        self._notify = notify(settings.names.notify_channel, CANCEL)

    def cancel(
        self,
        place: Session | Connection,
        event_id: UUID | str,
        reason: str | None,
        listener: str | None,
    ) -> dict[str, Answer]:
        wanted = checked_event_id(event_id)
        why = checked_text("reason", reason, most=MAX_REASON_BYTES)
        chosen = self._chosen(listener)
        connection = connection_of(place, self._withdraw)
        if internals.is_autocommit(connection):
            raise NotAtomic(
                "the connection is in AUTOCOMMIT: what is cancelled could start between two "
                "statements. Nothing was cancelled; use a transaction"
            )
        asking = Asking(connection, self._settings.names, _RIGHTS)
        found = asking.rows(self._find, event_id=wanted)
        if not found:
            raise EventNotFound(f"there is no event {wanted} in the log")
        position, event_type = found[0]["position"], found[0]["event_type"]
        # By name: two who cancel the same events wait for each other, and never both.
        concerned = sorted(
            (each for each in chosen if each.wants(event_type)), key=lambda each: each.name
        )
        if listener is not None and not concerned:
            raise ConfigError(f"listener {listener!r} does not listen to {event_type!r}")
        answers: dict[str, Answer] = {
            each.name: self._cancel(
                asking, each, {"listener": each.name, "position": position}, why
            )
            for each in concerned
        }
        if self._settings.audit != "off":
            for name, answer in answers.items():
                if answer == "cancelled":
                    document = encode_plain([_record(position, why)])
                    asking.rows(self._record, listener=name, document=document)
        if "requested" in answers.values() and self._settings.notifies:
            asking.rows(self._notify)
        return answers

    def _chosen(self, listener: str | None) -> Iterable[Listener]:
        if listener is None:
            return self._listeners
        if listener not in self._listeners:
            raise ConfigError(f"there is no listener {listener!r}")
        return (self._listeners[listener],)

    def _cancel(
        self, asking: Asking, listener: Listener, one: dict[str, Any], reason: str | None
    ) -> Answer:
        if not asking.rows(self._is_registered, listener=listener.name):
            return "unknown"
        if listener.order != "none":
            return self._in_order(asking, one, reason)
        if asking.rows(self._withdraw, **one):
            asking.rows(self._insert_cancelled, **one, reason=reason)
            return "cancelled"
        # Taken. Twice: it may move from a range into a row while it is looked for, and a row stays
        # until it is settled.
        for _ in range(2):
            row = asking.rows(self._lock, **one)
            if row and row[0]["state"] == "cancelled":
                return "cancelled"
            if row and asking.rows(self._cancel_waiting, **one, reason=reason):
                return "cancelled"
            holder = asking.rows(self._range_of, **one)
            if holder:
                part = holder[0]["number"]
                state = asking.rows(self._request, **one, part=part, reason=reason)
                return "cancelled" if state and state[0]["state"] == "cancelled" else "requested"
            if row:
                break  # locked, and in a range that is gone: it is being settled
        return self._ended(asking, one)

    def _in_order(self, asking: Asking, one: dict[str, Any], reason: str | None) -> Answer:
        row = asking.rows(self._lock, **one)
        if row and row[0]["state"] == "cancelled":
            return "cancelled"
        if row:
            state = asking.rows(self._cancel_scheduled, **one, reason=reason)
            if state:
                return "cancelled" if state[0]["state"] == "cancelled" else "requested"
        return "dead" if asking.rows(self._dead, **one) else "ordered"

    def _ended(self, asking: Asking, one: dict[str, Any]) -> Answer:
        return "dead" if asking.rows(self._dead, **one) else "done"


def _record(position: int, reason: str | None) -> dict[str, Any]:
    detail: dict[str, Any] = {} if reason is None else {"reason": reason}
    return {
        "position": position,
        "action": "cancelled",
        "attempt": None,
        "ago": 0.0,
        "detail": detail,
    }
