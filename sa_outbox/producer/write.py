"""Write what is pending: evaluate, put in order, one statement.

The invariant: when ``write_pending`` returns, every pending event whose row can exist by now is in
the database, in the caller's transaction, after everything that was added before it. When it
raises, every event that was not written is pending again, so that a second commit writes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import inspect
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import object_session

from ..database.faults import code_of, raise_if_fixable
from ..database.swallowed import abort_if_swallowed
from ..errors import DuplicateEvent, NotAtomic, OutboxError
from ..event.codec import encode_plain
from ..event.event import now_duplicate
from . import capture, internals
from .binds import bind_of, check_binds
from .entity import give_back
from .faults import QUOTING, without_data
from .statements import Statements

if TYPE_CHECKING:
    from collections.abc import Iterator
    from uuid import UUID

    from sqlalchemy.engine import Connection, Engine
    from sqlalchemy.orm import Session

    from ..database.tables import Tables
    from ..event.event import Event
    from ..observe import Observers
    from ..settings import Settings
    from .ledger import Ledger
    from .pending import Pending

_ROUNDS: Final = 100
_STATEMENT_BYTES: Final = 8_388_608
"""A statement carries about this much at most: the server parses the document in memory."""


class _Document(str):
    """A statement's parameter. Its ``repr`` is what echo and error messages print."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<events, {len(self)} characters, not shown>"


def tables_of(place: object, usual: Tables) -> Tables:
    """The outbox's tables for this session. A handler's session names their schema explicitly,
    whatever happened to its ``search_path``; for any other session, or if they have a schema, the
    *usual* ones."""
    found: Tables | None = getattr(place, "outbox_tables", None)
    if found is None or usual.names.schema is not None:
        return usual
    return found if found.names.prefix == usual.names.prefix else usual


class Writer:
    """Writes the pending events of any session into one outbox's log."""

    def __init__(self, tables: Tables, settings: Settings, observers: Observers) -> None:
        self._settings = settings
        self._observers = observers
        self._tables = tables
        self._statements = Statements(tables, settings)
        self._located: dict[Tables, Statements] = {}
        self._insert = self._statements.insert

    def write_pending(self, session: Session, ledger: Ledger) -> None:
        if ledger.writing:  # called by a callable that adds an event: the loop below picks it up
            return
        ledger.writing = True
        try:
            for _ in range(_ROUNDS):
                if not ledger.pending:
                    return
                held = self._write_round(session, ledger)
                added_meanwhile = bool(ledger.pending)
                if held:
                    ledger.put_back(held)
                if not added_meanwhile:
                    return
        finally:
            ledger.writing = False
        raise OutboxError(f"{_ROUNDS} rounds: does a payload callable add events forever?")

    def _write_round(self, session: Session, ledger: Ledger) -> list[Pending]:
        """Write what is pending now; return the events whose entity was not inserted yet."""
        unwritten = ledger.take()
        try:
            ready, held = _sorted_out(session, unwritten)
            unwritten = ready + held
            rows = [(each, each.row(self._settings.limits)) for each in ready]
            if self._settings.admission is not None:
                for each in ready:
                    if each.is_deferred:
                        self._settings.admission.check(each.event)
            if rows:
                connection, statements = self._connection(session), self._statements_of(session)
                for portion in _portions(rows):
                    self._write_rows(connection, statements, ledger, portion)
                    unwritten = unwritten[len(portion) :]
        except BaseException:
            ledger.put_back(unwritten)
            raise
        return held

    def _statements_of(self, session: Session) -> Statements:
        tables = tables_of(session, self._tables)
        if tables is self._tables:
            return self._statements
        found = self._located.get(tables)
        if found is None:
            found = self._located[tables] = Statements(tables, self._settings)
        return found

    def _write_rows(
        self,
        connection: Connection,
        statements: Statements,
        ledger: Ledger,
        rows: list[tuple[Pending, str]],
    ) -> None:
        if any(pending.idempotency_key is not None for pending, _ in rows):
            rows = self._first_of_their_key(connection, statements, rows)
        if not rows:
            return
        document = _Document("[" + ",".join(row for _, row in rows) + "]")
        written = self._execute(connection, statements.insert, {"document": document}).rowcount
        names, abort = self._settings.names, statements.abort
        abort_if_swallowed(connection, names, expected=len(rows), written=written, abort=abort)
        if statements.record is not None:
            self._execute(connection, statements.record, {"document": document})
        ledger.wrote_on = connection.engine
        if self._observers.all:
            ledger.count([pending for pending, _ in rows])
        if capture.present is not None:
            capture.present.wrote(connection, rows)

    def _first_of_their_key(
        self, connection: Connection, statements: Statements, rows: list[tuple[Pending, str]]
    ) -> list[tuple[Pending, str]]:
        """Drop the events whose idempotency key is taken by another event."""
        wanted: dict[tuple[str, str, str], UUID] = {}
        for pending, _ in rows:
            if pending.idempotency_key is not None:
                wanted.setdefault(_key_of(pending), pending.event.event_id)
        document = encode_plain(
            [
                {
                    "tenant": tenant,
                    "event_type": name,
                    "key": key,
                    "event_id": str(event_id),
                    "lifetime": self._settings.key_lifetime_of(name).total_seconds(),
                }
                for (tenant, name, key), event_id in wanted.items()
            ]
        )
        result = self._execute(connection, statements.claim, {"document": _Document(document)})
        holders = {(tenant, name, key): event_id for tenant, name, key, event_id in result}
        first, later = [], []
        for pending, row in rows:
            holder = holders.get(_key_of(pending), pending.event.event_id)
            if holder == pending.event.event_id:
                first.append((pending, row))
            else:
                later.append((pending.event, holder, pending.refused_twice))
        # Before any is marked: if it raises, all of them are pending again.
        for event, holder, refused in later:
            if refused:
                raise _duplicate(event, holder)
        for event, holder, _ in later:
            now_duplicate(event, holder)
        return first

    def refuse_two_databases(self, session: Session, ledger: Ledger) -> None:
        """Data flushed to a different database than the events' could commit without them."""
        if session.twophase:
            return
        home = self._bind(session).engine.dialect  # shared by engines with other options
        for engine, name in ledger.flushed_to.items():
            if engine.dialect is not home:
                raise NotAtomic(
                    f"{name} was flushed to another database than the events' table: one could "
                    "commit without the other. Roll back; use twophase=True, or an outbox in that "
                    "database"
                )

    def check_binds(self, session: Session) -> None:
        check_binds(session, self._tables.outbox)

    def _bind(self, session: Session) -> Engine | Connection:
        if session.bind is not None and not internals.may_use_several_binds(session):
            return session.bind
        return bind_of(session, self._insert, self._tables.outbox)

    def _connection(self, session: Session) -> Connection:
        # The Connection, not session.execute: that one would autoflush.
        connection = internals.connection_for(session, self._bind(session))
        if internals.is_autocommit(connection):
            raise NotAtomic(
                "the session's connection is in AUTOCOMMIT: the event would be stored though its "
                "data may not be. Nothing was written; use a transaction"
            )
        return connection

    def _execute(self, connection: Connection, statement: Any, parameters: dict[str, Any]) -> Any:
        try:
            return connection.execute(statement, parameters)
        except DBAPIError as error:
            error.hide_parameters = True  # payloads hold personal data, and errors end up in logs
            code = code_of(error)
            raise_if_fixable(error, self._settings.names, _RIGHTS)
            if code.startswith(QUOTING):
                raise without_data(error, code) from None
            raise


def _sorted_out(session: Session, taken: list[Pending]) -> tuple[list[Pending], list[Pending]]:
    """Split into events to write now and events to hold.

    Held are events whose entity has no row yet (a flush of only some objects), and those of an
    outer scope: written inside a savepoint, they would be rolled back with it.
    """
    scope = internals.current_scope(session)
    ready, held = [], []
    for each in taken:
        if each.scope is not scope:
            held.append(each)
        elif each.entity is None:
            ready.append(each)
        elif object_session(each.entity) is not session:
            give_back(each)  # expunged before it was written: the event follows its entity
        elif inspect(each.entity).key is None:
            held.append(each)
        else:
            ready.append(each)
    return ready, held


def _portions(rows: list[tuple[Pending, str]]) -> Iterator[list[tuple[Pending, str]]]:
    portion: list[tuple[Pending, str]] = []
    size = 0
    for each in rows:
        if portion and size + len(each[1]) > _STATEMENT_BYTES:
            yield portion
            portion, size = [], 0
        portion.append(each)
        size += len(each[1])
    yield portion


def _key_of(pending: Pending) -> tuple[str, str, str]:
    event = pending.event
    return event.tenant or "", event.event_type, pending.idempotency_key or ""


def _duplicate(event: Event[Any], holder: UUID) -> DuplicateEvent:
    whose = "" if event.tenant is None else f" of tenant {event.tenant!r}"
    key = event.idempotency_key or ""
    return DuplicateEvent(
        f"{event.event_type}{whose} with idempotency key {key!r} already exists: event {holder}. "
        "Nothing of this flush is kept; roll back",
        idempotency_key=key,
        duplicate_of=holder,
    )


_RIGHTS: Final = {"": "INSERT", "idempotency_keys": "SELECT, INSERT, UPDATE"}
"""The rights that adding events needs, by table suffix."""
