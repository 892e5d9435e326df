"""Report every problem with the tables, and how to fix it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from sa_outbox.database.rights import WRITTEN
from sa_outbox.database.tables import BACKLOG, tables
from sa_outbox.migrations import LATEST, OLDEST_SUPPORTED
from sa_outbox.sql.server import catalog

from .apply import ENCODING, ONLY_UTF8, home
from .connect import shown
from .problem import Problem, quote, refuse

if TYPE_CHECKING:
    from collections.abc import Iterator, Set

    from sqlalchemy import URL, Connection

    from sa_outbox.database.tables import Tables
    from sa_outbox.settings import Names

VERSION = {"schema_version", "compatible_since"}


def verify(connection: Connection, names: Names) -> None:
    """Raise ``SchemaError`` with every problem; return if events can be written.

    Reads only, and never waits for a lock. A version that this release does not create itself is
    accepted when the two are known to work together: code before migration, or migration before
    code.
    """
    refuse(problems(connection, names))


def problems(connection: Connection, names: Names) -> list[Problem]:
    """Every problem, in the order in which to fix them."""
    return list(_Inspection(connection, names).problems())


class _Inspection:
    """One read of the catalog, and the conclusions drawn from it."""

    def __init__(self, connection: Connection, names: Names) -> None:
        self.connection = connection
        self.names = names
        self.tables: Tables = tables(names)
        self.session = connection.execute(catalog.this_session()).one()
        self.schema = home(connection, names) or ""
        self.version: int | None = None
        ours = self.tables.relation_names
        rows = connection.execute(catalog.relations(self.schema, ours))
        self.found: dict[str, Any] = {row.name: row for row in rows}
        rights = connection.execute(catalog.schema_rights(self.schema)).first()
        self.may_use_schema = rights is not None and rights.may_use

    def problems(self) -> Iterator[Problem]:
        yield from self._writable()
        if self.session.encoding != ENCODING:
            yield Problem(
                "encoding",
                f"Database {self.session.database!r} has the encoding {self.session.encoding}",
                ONLY_UTF8,
            )
        if not self.found:
            yield self._nothing_there()
            return
        yield from self._rights()
        yield from self._version()
        yield from self._whole()
        yield from self._view()
        yield from self._ids()

    def _writable(self) -> Iterator[Problem]:
        if self.session.in_recovery:
            yield Problem(
                "standby",
                "This server is a standby: events can't be written or delivered here",
                "connect to the primary (target_session_attrs=read-write)",
            )
        elif self.session.read_only:
            yield Problem(
                "read-only",
                "Transactions of this connection are read-only: events can't be written",
                f"ALTER ROLE {quote(self.session.role)} SET default_transaction_read_only = off;"
                " or change it for the database, or where the connection is made",
            )

    def _nothing_there(self) -> Problem:
        where = f"schema {self.schema!r}" if self.schema else "any schema of the search_path"
        return Problem(
            "no-tables",
            f"There is no outbox named {self.names.table()!r} in {where} of database "
            f"{self.session.database!r}",
            self._migrate_command(),
        )

    def _rights(self) -> Iterator[Problem]:
        role = self.session.role
        if not self.may_use_schema:
            yield Problem(
                "no-right",
                f"Role {role!r} may not use schema {self.schema!r}",
                f"GRANT USAGE ON SCHEMA {quote(self.schema)} TO {quote(role)};",
            )
        log, meta = self.names.table(), self.names.table("meta")
        if log in self.found and not set(self.found[log].insertable) >= set(WRITTEN):
            yield Problem(
                "no-right",
                f"Role {role!r} may not insert into {log}",
                f"GRANT INSERT ({', '.join(WRITTEN)}) ON {self._qualified(log)} TO {quote(role)};",
            )
        if meta in self.found and not self._readable("meta", VERSION):
            yield Problem(
                "no-right",
                f"Role {role!r} may not read {meta}, which holds the version of the tables",
                f"GRANT SELECT ON {self._qualified(meta)} TO {quote(role)};",
            )

    def _version(self) -> Iterator[Problem]:
        if not self._readable("meta", VERSION):
            return
        version = self.connection.execute(catalog.version(self.tables)).first()
        if version is None:
            yield Problem(
                "no-version",
                f"{self.names.table('meta')} has lost its one row",
                "restore it from a backup",
            )
            return
        self.version = version.schema_version
        if version.schema_version < OLDEST_SUPPORTED:
            yield Problem(
                "tables-too-old",
                f"The tables have version {version.schema_version}; this release needs "
                f"{OLDEST_SUPPORTED} or {LATEST}",
                self._migrate_command(),
            )
        elif version.compatible_since > LATEST:
            # The migration itself records which older releases keep working.
            yield Problem(
                "tables-too-new",
                f"The tables have version {version.schema_version}, which needs a release that "
                f"knows version {version.compatible_since}; this one knows up to {LATEST}",
                "update the package sa_outbox",
            )

    def _whole(self) -> Iterator[Problem]:
        """Every table exists, is the right one and not a namesake, and has every column."""
        for table in self.tables.metadata.tables.values():
            row = self.found.get(table.name)
            if row is None:
                yield Problem(
                    "table-missing",
                    f"Table {table.name} is missing",
                    "restore it from a backup, or make it again by its statements in: "
                    + self._ddl_command(),
                )
                continue
            if self.names.schema is None and self.may_use_schema and not row.visible:
                yield Problem(
                    "table-shadowed",
                    f"Another table named {table.name} comes first in the search_path",
                    f"rename or drop that one, or name the schema of the outbox: {self.schema}",
                )
            if row.kind != ("p" if table is self.tables.outbox else "r"):
                yield Problem(
                    "table-foreign",
                    f"{table.name} is not the kind of table that sa_outbox creates",
                    "restore it from a backup, or choose another prefix or schema",
                )
            # A column that only another version has is reported as a problem of the version.
            missing = [column.name for column in table.columns if column.name not in row.columns]
            if missing and self.version in (None, LATEST):
                yield Problem(
                    "column-missing",
                    f"Table {table.name} has no column {', '.join(missing)}",
                    "restore it from a backup, or add it as in: " + self._ddl_command(),
                )

    def _view(self) -> Iterator[Problem]:
        name = self.names.table(BACKLOG)
        row = self.found.get(name)
        if row is None and self.version in (None, LATEST):
            yield Problem(
                "view-missing",
                f"View {name} is missing",
                "create it by its statement in: " + self._ddl_command(),
            )
        elif row is not None and row.kind != "v":
            yield Problem(
                "table-foreign",
                f"{name} is not the view that sa_outbox creates",
                "rename it, or choose another prefix or schema",
            )

    def _ids(self) -> Iterator[Problem]:
        """What lossless reading relies on: ids drawn one by one, in the insert itself."""
        log = self.names.table()
        if log not in self.found or "id" not in self.found[log].columns:
            return
        ids = self.connection.execute(catalog.log_identity(self.schema, log)).one()
        last_id = 0
        if self._readable("", {"id"}):
            last_id = self.connection.scalar(catalog.last_id(self.tables)) or 0
        if ids.identity != "a":
            how = (
                "SET GENERATED ALWAYS"
                if ids.identity
                else f"ADD GENERATED ALWAYS AS IDENTITY (START WITH {last_id + 1})"
            )
            yield Problem(
                "id-not-always",
                f"{log}.id is not GENERATED ALWAYS AS IDENTITY: an id drawn elsewhere can be "
                "skipped before it is visible",
                f"ALTER TABLE {self._qualified(log)} ALTER COLUMN id {how};",
            )
        if ids.sequence is not None:
            yield from self._sequence(ids, last_id)
        if self.found[log].kind == "p" and not ids.default_partition:
            yield Problem(
                "no-default-partition",
                f"{log} has no default partition: an insert fails when its partition is missing",
                f"CREATE TABLE {self._qualified(self.names.table('rest'))} "
                f"PARTITION OF {self._qualified(log)} DEFAULT;",
            )

    def _sequence(self, ids: Any, last_id: int) -> Iterator[Problem]:
        sequence = f"{quote(ids.sequence_schema)}.{quote(ids.sequence)}"
        if ids.cache != 1:
            yield Problem(
                "sequence-cache",
                f"Sequence {sequence} has CACHE {ids.cache}: ids would not be in the order of "
                "drawing, and events would be skipped",
                f"ALTER SEQUENCE {sequence} CACHE 1; and reconnect everything that writes",
            )
        if ids.increment != 1 or ids.cycle:
            yield Problem(
                "sequence-step",
                f"Sequence {sequence} does not count up by one",
                f"ALTER SEQUENCE {sequence} INCREMENT 1 NO CYCLE;",
            )
        expected = f"{self.names.table()}_id_seq"
        if ids.sequence != expected:
            yield Problem(
                "sequence-renamed",
                f"Sequence {sequence} is not called {expected}, under which consumers read it",
                f"ALTER SEQUENCE {sequence} RENAME TO {quote(expected)};",
            )
        if not (ids.may_read and self.may_use_schema):
            return
        last_drawn = catalog.last_drawn(ids.sequence_schema, ids.sequence)
        drawn = self.connection.scalar(last_drawn) or 0
        if last_id > drawn:
            yield Problem(
                "sequence-behind",
                f"Sequence {sequence} is at {drawn}, behind event {last_id}: someone chose ids, "
                "or the log was restored without its sequence. Events above it are not delivered, "
                "and an insert that draws the id of one fails",
                f"SELECT setval('{sequence}', {last_id}); when those events are yours, as after a "
                "restore. When someone chose their ids, delete them instead",
            )
        if self._readable("listeners", {"name", "last_processed_id"}):
            ahead = self.connection.execute(catalog.cursors_ahead(self.tables, drawn)).all()
            # Read again, after the cursors: a running one has passed what was drawn before.
            drawn = (self.connection.scalar(last_drawn) or 0) if ahead else drawn
            for name, cursor in ahead:
                if cursor <= drawn:
                    continue
                yield Problem(
                    "cursor-ahead",
                    f"Listener {name!r} is at {cursor}, but the last id drawn is {drawn}: "
                    "its cursor is from another time than the log, as after a partial restore, "
                    "and it would skip new events",
                    f"SELECT setval('{sequence}', {cursor}); and, to have it attempt again what "
                    "was restored, set its last_processed_id back",
                )

    def _readable(self, suffix: str, columns: Set[str]) -> bool:
        """Whether a SELECT works: one that fails would abort the caller's transaction."""
        row = self.found.get(self.names.table(suffix))
        return row is not None and self.may_use_schema and columns <= set(row.readable)

    def _qualified(self, name: str) -> str:
        return f"{quote(self.schema)}.{quote(name)}"

    def _migrate_command(self) -> str:
        return migrate_command(self.names, self.connection.engine.url)

    def _ddl_command(self) -> str:
        return shlex.join(["sa-outbox", "migrate", "--sql", *self.names.options])


def migrate_command(names: Names, url: URL | None = None) -> str:
    """The command that creates or updates the tables. Never contains a password."""
    known = url is not None and (url.host or url.database)
    where = shown(url) if url is not None and known else "URL"
    return shlex.join(["sa-outbox", "migrate", "--database-url", where, *names.options])
