"""Cancel an event: if it has not started, it never starts; a running handler is asked to stop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from ..database.statement_runner import StatementRunner
from ..errors import ConfigError, EventNotFound, NotAtomic
from ..event.codec import encode_plain
from ..event.context import current_actor
from ..event.validation import checked_event_id, checked_text
from ..producer import internals
from ..sql.people import audit
from ..sql.queue import cancellation
from ..sql.server.notify import CANCEL, notify
from .caller import connection_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from uuid import UUID

    from sqlalchemy.engine import Connection
    from sqlalchemy.orm import Session

    from ..database.tables import Tables
    from ..declare.declaration import Listeners
    from ..declare.listener import Listener
    from ..settings import Settings

Answer: TypeAlias = Literal["cancelled", "requested", "done", "dead", "ordered", "unknown"]
"""What ``cancel`` achieved for a listener. ``cancelled``: it never starts, or never again.
``requested``: it runs or is about to; its holder is asked to stop. ``done``, ``dead``: too late.
``ordered``: the listener keeps an order, in which the event has its place. ``unknown``: the
database does not know the listener yet."""

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
        self._log = tables.outbox
        self._settings = settings
        self._listeners = listeners
        self._find = cancellation.find(tables)
        self._find_filtered = cancellation.find(tables, filtered=True)
        self._withdraw = cancellation.withdraw(tables)
        self._is_registered = cancellation.is_registered(tables)
        self._insert_cancelled = cancellation.insert_cancelled(tables)
        self._lock = cancellation.lock(tables)
        self._cancel_waiting = cancellation.cancel_waiting(tables)
        self._cancel_scheduled = cancellation.cancel_scheduled(tables)
        self._range_of = cancellation.range_of(tables)
        self._request = cancellation.request(tables)
        self._dead = cancellation.dead(tables)
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
        connection = connection_of(place, self._withdraw, self._log)
        if internals.is_autocommit(connection):
            raise NotAtomic(
                "the connection is in AUTOCOMMIT: what is cancelled could start between two "
                "statements. Nothing was cancelled; use a transaction"
            )
        runner = StatementRunner(connection, self._settings.names, _RIGHTS)
        if filters := self._listeners.filters:
            found = runner.rows(self._find_filtered, event_id=wanted, filters=filters)
        else:
            found = runner.rows(self._find, event_id=wanted)
        if not found:
            raise EventNotFound(f"there is no event {wanted} in the log")
        position, event_type, met = (found[0][each] for each in ("position", "event_type", "met"))
        # In order of name: two callers cancelling the same events wait for each other without
        # deadlock.
        concerned = sorted(
            (each for each in chosen if each.takes(event_type, met)), key=lambda each: each.name
        )
        if listener is not None and not concerned:
            wants = self._listeners[listener].wants(event_type)
            out = "leaves this event out by its where=" if wants else "does not listen to it"
            raise ConfigError(f"listener {listener!r} {out}, of type {event_type!r}")
        actor = current_actor()
        given = {"reason": why, "actor": encode_plain(actor)}
        answers: dict[str, Answer] = {
            each.name: self._cancel(
                runner,
                {"listener": each.name, "position": position},
                given,
                is_queue=each.order_mode.is_queue,
            )
            for each in concerned
        }
        if self._settings.audit != "off":
            for name, answer in answers.items():
                if answer == "cancelled":
                    document = encode_plain([_record(position, why, actor)])
                    runner.rows(self._record, listener=name, document=document)
        if "requested" in answers.values() and self._settings.notifies:
            runner.rows(self._notify)
        return answers

    def cancel_delivery(
        self,
        runner: StatementRunner,
        listener: str,
        position: int,
        reason: str | None,
        actor: dict[str, str],
        *,
        is_queue: bool,
        has_row: bool,
    ) -> Answer:
        """Cancel one delivery that has a row, or whose event is in the log, for an operator:
        *listener* need not be one that this program declares. Always recorded in the audit.

        One with a row is not withdrawn: a replay may wait while the event is unclaimed again."""
        one = {"listener": listener, "position": position}
        given = {"reason": reason, "actor": encode_plain(actor)}
        if is_queue and has_row:
            answer = self._claimed(runner, one, given)
        else:
            answer = self._cancel(runner, one, given, is_queue=is_queue)
        if answer == "cancelled":
            document = encode_plain([_record(position, reason, actor)])
            runner.rows(self._record, listener=listener, document=document)
        elif answer == "requested" and self._settings.notifies:
            runner.rows(self._notify)
        return answer

    def is_dead(self, runner: StatementRunner, listener: str, position: int) -> bool:
        """Whether it is a dead letter that was not replayed."""
        return bool(runner.rows(self._dead, listener=listener, position=position))

    def _chosen(self, listener: str | None) -> Iterable[Listener]:
        if listener is None:
            return self._listeners
        if listener not in self._listeners:
            raise ConfigError(f"there is no listener {listener!r}")
        return (self._listeners[listener],)

    def _cancel(
        self,
        runner: StatementRunner,
        one: dict[str, Any],
        given: dict[str, Any],
        *,
        is_queue: bool,
    ) -> Answer:
        if not runner.rows(self._is_registered, listener=one["listener"]):
            return "unknown"
        if not is_queue:
            return self._in_order(runner, one, given)
        if runner.rows(self._withdraw, **one):
            runner.rows(self._insert_cancelled, **one, **given)
            return "cancelled"
        return self._claimed(runner, one, given)

    def _claimed(
        self, runner: StatementRunner, one: dict[str, Any], given: dict[str, Any]
    ) -> Answer:
        # Checked twice: it may move from a range into a row between the two statements, and a row
        # stays until it is settled.
        for _ in range(2):
            found = runner.rows(self._lock, **one)
            if found and found[0]["state"] == "cancelled":
                return "cancelled"
            if found and runner.rows(self._cancel_waiting, **one, **given):
                return "cancelled"
            holder = runner.rows(self._range_of, **one)
            if holder:
                part = holder[0]["number"]
                state = runner.rows(self._request, **one, part=part, **given)
                return "cancelled" if state and state[0]["state"] == "cancelled" else "requested"
            if found:
                break  # locked, and its range is gone: it is being settled
        return "dead" if self.is_dead(runner, **one) else "done"

    def _in_order(
        self, runner: StatementRunner, one: dict[str, Any], given: dict[str, Any]
    ) -> Answer:
        found = runner.rows(self._lock, **one)
        if found and found[0]["state"] == "cancelled":
            return "cancelled"
        if found:
            state = runner.rows(self._cancel_scheduled, **one, **given)
            if state:
                return "cancelled" if state[0]["state"] == "cancelled" else "requested"
        return "dead" if self.is_dead(runner, **one) else "ordered"


def _record(position: int, reason: str | None, actor: dict[str, str]) -> dict[str, Any]:
    detail: dict[str, Any] = {} if reason is None else {"reason": reason}
    return {
        "position": position,
        "action": "cancelled",
        "attempt": None,
        "ago": 0.0,
        "detail": detail,
        "actor": actor,
    }
