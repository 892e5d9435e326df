"""Which events were added, and what became of them.

An event that waits is one of its session's. Once it is written, the fate of its connection's
transaction is its own: a savepoint that is rolled back takes it along, whoever set it, and so does
the transaction. That is read from SQLAlchemy's events, so it holds for sync and async sessions, and
for sessions that are joined to a transaction of the test's.

Only this process is seen.
"""

from __future__ import annotations

import weakref
from contextlib import contextmanager
from threading import RLock
from typing import TYPE_CHECKING, Any

from sqlalchemy import event
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.orm import Session

from sa_outbox.event.codec import decode
from sa_outbox.producer import capture, internals
from sa_outbox.settings import Limits

from .added_events import AddedEvent, AddedEvents, State, added_event

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sa_outbox.producer.capture import Waiting
    from sa_outbox.producer.pending import Pending

_LIMITS = Limits()


class _Entry:
    """An event that was added."""

    def __init__(self, pending: Pending, waiting: Waiting | None) -> None:
        self.pending = pending
        self.waiting = waiting
        scope = pending.scope
        self.session = None if scope is None else weakref.ref(scope.session)
        self.document: str | None = None
        """Its row, once it is written."""
        self.savepoints: set[str] = set()
        """Those of its connection that it was written in."""
        self.is_committed = False
        self.is_undone = False
        self.is_forgotten = False

    @property
    def state(self) -> State | None:
        """None: it was rolled back, or discarded."""
        if self.is_undone:
            return None
        if self.document is not None:
            return "committed" if self.is_committed else "written"
        waiting = () if self.waiting is None else self.waiting.pending
        is_waiting = any(each is self.pending for each in waiting) and not self.pending.dropped
        return "pending" if is_waiting else None

    @property
    def row(self) -> dict[str, Any]:
        pending = self.pending
        document = self.document
        if document is None and not pending.is_deferred:
            document = pending.row(_LIMITS)
        if document is not None:
            row: dict[str, Any] = decode(document)
            return row
        known = pending.event  # what only the flush makes known is left out
        return {
            "event_id": known.event_id.hex,
            "event_type": known.event_type,
            "tenant": known.tenant,
            "headers": dict(known.headers),
            "priority": known.priority,
            "run_at": None if known.run_at is None else known.run_at.isoformat(),
        }


class EventCapture:
    """Watches all outboxes of this process, while ``watching``."""

    def __init__(self) -> None:
        self._lock = RLock()  # sync handlers add events in threads
        self._entries: dict[int, _Entry] = {}
        self._written: weakref.WeakKeyDictionary[Connection, list[_Entry]] = (
            weakref.WeakKeyDictionary()
        )
        """In the transaction that each connection is in."""
        self.events: AddedEvents = AddedEvents(self._read, self._forget)

    @contextmanager
    def watching(self) -> Iterator[AddedEvents]:
        hooks: list[tuple[Any, str, Any]] = [
            (Session, "after_commit", self._session_committed),
            (Engine, "rollback_savepoint", self._savepoint_undone),
            (Engine, "commit", self._committed),
            (Engine, "commit_twophase", self._committed),
            (Engine, "rollback", self._undone),
            (Engine, "rollback_twophase", self._undone),
        ]
        before, capture.present = capture.present, self
        for target, name, hook in hooks:
            event.listen(target, name, hook)
        try:
            yield self.events
        finally:
            capture.present = before
            for target, name, hook in hooks:
                event.remove(target, name, hook)

    # What the producer reports

    def added(self, pending: Pending, waiting: Waiting) -> None:
        with self._lock:
            self._entry(pending).waiting = waiting

    def wrote(self, connection: Connection, rows: Sequence[tuple[Pending, str]]) -> None:
        with self._lock:
            written = self._written.setdefault(connection, [])
            for pending, document in rows:
                entry = self._entry(pending)
                entry.document = document
                entry.savepoints = {*internals.savepoints_of(connection)}
                written.append(entry)

    def kept(self, connection: Connection, savepoint: str) -> None:
        with self._lock:
            for entry in self._written.get(connection, ()):
                entry.savepoints.discard(savepoint)

    def _entry(self, pending: Pending) -> _Entry:
        # By identity: an entity that is added again has a new one for the same event.
        return self._entries.setdefault(id(pending), _Entry(pending, None))

    # What SQLAlchemy reports

    def _session_committed(self, session: Session) -> None:
        if session.get_nested_transaction() is not None:
            return  # a savepoint was released
        with self._lock:
            for entry in self._entries.values():
                if entry.session is not None and entry.session() is session:
                    entry.is_committed = True

    def _savepoint_undone(self, connection: Connection, name: str, _context: None) -> None:
        with self._lock:
            for entry in self._written.get(connection, ()):
                entry.is_undone = entry.is_undone or name in entry.savepoints

    def _committed(self, connection: Connection, *_: object) -> None:
        with self._lock:
            for entry in self._written.pop(connection, ()):
                entry.is_committed = True

    def _undone(self, connection: Connection, *_: object) -> None:
        with self._lock:
            for entry in self._written.pop(connection, ()):
                entry.is_undone = True

    # What the test asks

    def _read(self) -> tuple[list[AddedEvent], list[str]]:
        with self._lock:
            entries = sorted(self._entries.values(), key=lambda each: each.pending.order)
            events, undone = [], []
            for each in entries:
                if each.is_forgotten:
                    continue
                added, state = each.pending.event, each.state
                if state is not None:
                    events.append(added_event(each.row, state, added.idempotency_key))
                elif added.duplicate_of is None:
                    undone.append(added.event_type)
            return events, undone

    def _forget(self) -> None:
        with self._lock:
            for each in self._entries.values():  # kept: those that wait are written later
                each.is_forgotten = True
