"""Write what is pending: evaluate, put into order, one statement.

The invariant: when ``write_pending`` returns, every pending event whose row can exist by now is
in the database, in the caller's transaction, after everything that was added before it. When it
raises, every event that was not written is pending again, so that a second commit writes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import inspect
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import object_session

from ..codec import encode_plain
from ..errors import DuplicateEvent, NotAtomic, OutboxError, SchemaError
from ..event import now_duplicate
from ..sql.audit import record_added
from ..sql.events import claim_idempotency_keys, insert_events
from . import internals
from .entity import give_back

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from uuid import UUID

    from sqlalchemy.engine import Connection, Engine
    from sqlalchemy.orm import Session

    from ..event import Event
    from ..settings import Names, Settings
    from ..tables import Tables
    from .ledger import Ledger
    from .pending import Pending

_ROUNDS: Final = 100
_STATEMENT_BYTES: Final = 8_388_608
"""A statement carries about this much at most: the server parses the document in memory."""


class _Document(str):
    """The parameter of a statement. Its ``repr`` is what echo and error messages print."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<events, {len(self)} characters, not shown>"


class Writer:
    """Writes the pending events of any session into one outbox's log."""

    def __init__(self, tables: Tables, settings: Settings) -> None:
        self._settings = settings
        self._insert = insert_events(tables)
        self._claim = claim_idempotency_keys(tables)
        self._record = record_added(tables) if settings.audit == "all" else None

    def write_pending(self, session: Session, ledger: Ledger) -> None:
        if ledger.writing:  # called by a callable that adds an event: the loop below takes it
            return
        ledger.writing = True
        try:
            for _ in range(_ROUNDS):
                if not ledger.pending:
                    return
                held = self._write_round(session, ledger)
                added_meanwhile = bool(ledger.pending)
                ledger.put_back(held)
                if not added_meanwhile:
                    return
        finally:
            ledger.writing = False
        raise OutboxError(f"{_ROUNDS} rounds: does a payload callable add events for ever?")

    def _write_round(self, session: Session, ledger: Ledger) -> list[Pending]:
        """Write what is pending now; return those whose entity was not inserted yet."""
        unwritten = ledger.take()
        try:
            ready, held = _sorted_out(session, unwritten)
            unwritten = ready + held
            rows = [(each, each.row(self._settings.limits)) for each in ready]
            if rows:
                connection = self._connection(session)
                for portion in _portions(rows):
                    self._write_rows(connection, ledger, portion)
                    unwritten = unwritten[len(portion) :]
        except BaseException:
            ledger.put_back(unwritten)
            raise
        return held

    def _write_rows(
        self, connection: Connection, ledger: Ledger, rows: list[tuple[Pending, str]]
    ) -> None:
        if any(pending.event.idempotency_key is not None for pending, _ in rows):
            rows = self._first_of_their_key(connection, rows)
        if not rows:
            return
        document = _Document("[" + ",".join(row for _, row in rows) + "]")
        self._execute(connection, self._insert, {"document": document})
        if self._record is not None:
            self._execute(connection, self._record, {"document": document})
        ledger.wrote_on = connection.engine

    def _first_of_their_key(
        self, connection: Connection, rows: list[tuple[Pending, str]]
    ) -> list[tuple[Pending, str]]:
        """Leave out the events whose idempotency key another event has."""
        wanted: dict[tuple[str, str, str], UUID] = {}
        for pending, _ in rows:
            if pending.event.idempotency_key is not None:
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
        result = self._execute(connection, self._claim, {"document": _Document(document)})
        holders = {(row[0], row[1], row[2]): row[3] for row in result}
        first, later = [], []
        for pending, row in rows:
            holder = holders.get(_key_of(pending), pending.event.event_id)
            if holder == pending.event.event_id:
                first.append((pending, row))
            else:
                later.append((pending.event, holder, pending.refused_twice))
        # Before any is marked: when it raises, all of them are pending again.
        for event, holder, refused in later:
            if refused:
                raise _duplicate(event, holder)
        for event, holder, _ in later:
            now_duplicate(event, holder)
        return first

    def engine_of(self, session: Session) -> Engine:
        """The engine that holds the log, asked of the session as for any write."""
        return self._bind(session).engine

    def _bind(self, session: Session) -> Engine | Connection:
        if internals.is_flushing(session):
            return session.get_bind(clause=self._insert)
        with internals.looking_like_a_flush(session):
            return session.get_bind(clause=self._insert)

    def _connection(self, session: Session) -> Connection:
        # The Connection and not session.execute: that one would autoflush.
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
            error.hide_parameters = True  # payloads hold people's data, and errors end in logs
            code = _code_of(error)
            raise_if_mendable(error, self._settings.names, _RIGHTS)
            if code.startswith(_QUOTING):
                raise _without_data(error, code) from None
            raise


def _sorted_out(session: Session, taken: list[Pending]) -> tuple[list[Pending], list[Pending]]:
    """Those to write now, and those to hold.

    Held are events whose entity has no row yet (a flush of some objects only), and those of an
    outer scope: written inside a savepoint, they would go with it.
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
    return event.tenant or "", event.event_type, event.idempotency_key or ""


def _duplicate(event: Event[Any], holder: UUID) -> DuplicateEvent:
    whose = "" if event.tenant is None else f" of tenant {event.tenant!r}"
    key = event.idempotency_key or ""
    return DuplicateEvent(
        f"{event.event_type}{whose} with the idempotency key {key!r} is event {holder} already. "
        "Nothing of this flush is kept; roll back",
        idempotency_key=key,
        duplicate_of=holder,
    )


_RIGHTS: Final = {"": "INSERT", "idempotency_keys": "SELECT, INSERT, UPDATE"}
"""What adding events needs, by the table's suffix."""


def raise_if_mendable(error: DBAPIError, names: Names, rights: Mapping[str, str]) -> None:
    """Raise :class:`SchemaError` with what to do, for a fault that a person can mend."""
    mended_by = _what_mends(_code_of(error), names, rights)
    if mended_by is not None:
        raise SchemaError(f"{_first_line(error)}. {mended_by}") from error


def _what_mends(code: str, names: Names, rights: Mapping[str, str]) -> str | None:
    """A sentence for the faults that a person can mend; None for all others."""
    if code in ("42P01", "3F000", "42703"):  # no such table, schema, column
        command = " ".join(["sa-outbox migrate --database-url URL", *names.options])
        return f"The outbox's tables are missing or old. Make them: {command}"
    if code == "42501":
        home = "" if names.schema is None else f"{names.schema}."
        usage = "" if names.schema is None else f"GRANT USAGE ON SCHEMA {names.schema} TO role; "
        grants = [
            f"GRANT {right} ON {home}{names.table(suffix)} TO role"
            for suffix, right in rights.items()
        ]
        return f"This role may not write here. Allow it: {usage}{'; '.join(grants)}"
    if code == "25006":
        return "The connection is read-only, or leads to a standby: writing needs the primary"
    return None


_QUOTING: Final = ("22", "23")
"""Classes of errors in whose details PostgreSQL quotes the row: bad data, broken constraints."""


class _RefusedError(Exception):
    """Stands for the driver's error, without the details that quote the event."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.sqlstate = self.pgcode = code


def _without_data(error: DBAPIError, code: str) -> DBAPIError:
    refused = _RefusedError(_first_line(error), code)
    return type(error)(error.statement, None, refused, hide_parameters=True)


def _code_of(error: DBAPIError) -> str:
    return getattr(error.orig, "sqlstate", None) or getattr(error.orig, "pgcode", None) or ""


def _first_line(error: DBAPIError) -> str:
    return str(error.orig).partition("\n")[0].rstrip(".")
