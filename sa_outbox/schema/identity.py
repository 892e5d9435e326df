"""Whether this is the database its tables were created in, or a copy of it.

A staging system filled from a production dump must not mail production's customers. So
``outbox_meta`` remembers the database: the identifier that ``initdb`` gave its server, and the oid
that ``CREATE DATABASE`` gave it there. A dump carries both, and where it is restored at least one
of them differs. A copy of the files (base backup, disk snapshot) has both, as does a promoted
standby: these two can't be distinguished from inside (docs/copies.md).
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy.exc import DBAPIError

from sa_outbox.database.tables import tables
from sa_outbox.errors import SchemaError
from sa_outbox.sql.server import identity as statements
from sa_outbox.sql.server.notify import ADOPTED, notify

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from sa_outbox.settings import Names


@dataclass(frozen=True)
class Identity:
    system_identifier: int | None
    """The server's identifier; None: unknown."""
    database_oid: int | None

    def __str__(self) -> str:
        server = "unknown" if self.system_identifier is None else self.system_identifier
        return f"server {server}, database oid {self.database_oid or 'unknown'}"


@dataclass(frozen=True)
class Home:
    """Where the tables are, and where they were before."""

    database: str
    role: str
    epoch: int
    stored: Identity
    present: Identity

    @property
    def is_copy(self) -> bool:
        """It is another database, or that can't be determined: external listeners wait."""
        was, now = self.stored, self.present
        moved = was.database_oid is not None and was.database_oid != now.database_oid
        other = was.system_identifier is not None and (
            was.system_identifier != now.system_identifier
        )
        return moved or other

    @property
    def is_unreadable(self) -> bool:
        """The role may not query which server this is."""
        return self.present.system_identifier is None


def find_home(connection: Connection, names: Names) -> Home:
    """Read where the tables are. Reads only."""
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
    """Read where the tables are, and record the server if it was unknown and the role may write it.
    The caller commits."""
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
    """Declare that this database may act on the outside world; return what it was before, and the
    new epoch.

    Running consumers are notified and start what was waiting. The caller commits.
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
    except DBAPIError as error:  # a host that has the function but does not allow it
        if error.connection_invalidated:
            raise
        return None
    return found
