"""Whether this database is the one its tables were at home in, or a copy of it.

A staging system that is filled from a dump of production must not mail production's customers. So
``outbox_meta`` remembers the database: the identifier that ``initdb`` gave its server, and the oid
that ``CREATE DATABASE`` gave it there. A dump takes both along, and where it is restored at least
one of them is another. A copy of the files (base backup, snapshot of a disk) has both, as a standby
has that is promoted: those two can't be told apart from within (docs/copies.md).
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy.exc import DBAPIError

from sa_outbox.errors import SchemaError
from sa_outbox.sql import identity as statements
from sa_outbox.sql.notify import notify
from sa_outbox.tables import tables

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from sa_outbox.settings import Names

ADOPTED = "adopted"
"""Message of the NOTIFY that tells running consumers to look at the identity again."""


@dataclass(frozen=True)
class Identity:
    system_identifier: int | None
    """Of the server; None: it is not known."""
    database_oid: int | None

    def __str__(self) -> str:
        server = "unknown" if self.system_identifier is None else self.system_identifier
        return f"server {server}, database oid {self.database_oid or 'unknown'}"


@dataclass(frozen=True)
class Home:
    """Where the tables are, and where they were at home."""

    database: str
    role: str
    epoch: int
    stored: Identity
    present: Identity

    @property
    def is_copy(self) -> bool:
        """It is another database, or nobody can tell: external listeners wait."""
        was, now = self.stored, self.present
        moved = was.database_oid is not None and was.database_oid != now.database_oid
        other = was.system_identifier is not None and (
            was.system_identifier != now.system_identifier
        )
        return moved or other

    @property
    def is_unreadable(self) -> bool:
        """The role may not ask which server this is."""
        return self.present.system_identifier is None


def find_home(connection: Connection, names: Names) -> Home:
    """Reads only."""
    row = connection.execute(statements.present()).one()
    stored = connection.execute(statements.stored(tables(names))).first()
    if stored is None:
        raise SchemaError(f"{names.table('meta')} has lost its one row: restore it from a backup")
    server = _system_identifier(connection) if row.may_read else None
    return Home(
        database=row.database,
        role=row.role,
        epoch=stored.epoch,
        stored=Identity(stored.system_identifier, stored.database_oid),
        present=Identity(server, row.database_oid),
    )


def settle_home(connection: Connection, names: Names) -> Home:
    """The same; and where the server was not known yet, it is from now on, if the role may write
    it. The transaction is the caller's to commit."""
    home = find_home(connection, names)
    if home.stored.system_identifier is None and not (home.is_copy or home.is_unreadable):
        try:
            with connection.begin_nested():
                connection.execute(
                    statements.remember(tables(names)),
                    {"system_identifier": home.present.system_identifier},
                )
        except DBAPIError as error:  # usually: no right to
            if error.connection_invalidated:
                raise
    return home


def adopt(connection: Connection, names: Names, *, by: str) -> tuple[Home, int]:
    """Say that this database is meant to act on the world: what it was, and the new epoch.

    Consumers that run are told, and start what waited. The transaction is the caller's to commit.
    """
    home, ours = find_home(connection, names), tables(names)
    present = home.present
    epoch: int = connection.execute(
        statements.adopt(ours),
        {"system_identifier": present.system_identifier, "database_oid": present.database_oid},
    ).scalar_one()
    detail = {"was": str(home.stored), "is": str(present), "epoch": epoch}
    connection.execute(statements.record_adopted(ours), {"actor_id": by, "detail": detail})
    connection.execute(notify(names.notify_channel, ADOPTED))
    return home, epoch


def adopt_command(names: Names) -> str:
    return shlex.join(["sa-outbox", "adopt", *names.options])


def _system_identifier(connection: Connection) -> int | None:
    try:
        with connection.begin_nested():
            found: int | None = connection.scalar(statements.system_identifier())
    except DBAPIError as error:  # a host that has the function, and does not run it
        if error.connection_invalidated:
            raise
        return None
    return found
