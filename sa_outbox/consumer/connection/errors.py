"""What a database error means: unreachable, refused, or transient."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import asyncpg
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

if TYPE_CHECKING:
    from collections.abc import Sequence

_AWAY = ("08", "530", "531", "532", "533", "57P", "58", "25P03")
"""SQLSTATE classes that concern the server, not the statement: connection, resources (not 53400, a
configured limit), shutdown, system errors; a transaction that idled too long."""
_OF_A_ROW = ("20", "21", "22", "23", "38", "39", "44", "54", "P0", "XX")
"""SQLSTATE classes that concern the content of a row: data, constraints, limits (of an index, of a
text), triggers, corruption. Not rights, missing tables, locks, timeouts, read-only servers."""


class Doubted(ConnectionError):
    """A connection ended meanwhile: what was read may belong to another history. If the statement
    was sent, *answer* is what came back."""

    def __init__(self, answer: Sequence[Any] = ()) -> None:
        super().__init__("a connection has ended meanwhile")
        self.answer = answer


def _origin(error: BaseException) -> BaseException:
    """What the driver raised, beneath SQLAlchemy's wrappers."""
    while True:
        if isinstance(error, DBAPIError) and error.orig is not None:
            error = error.orig
        elif type(error).__module__.startswith("sqlalchemy.") and error.__cause__ is not None:
            error = error.__cause__
        else:
            return error


def sqlstate_of(error: BaseException) -> str:
    origin = _origin(error)
    found = getattr(origin, "sqlstate", None) or getattr(origin, "pgcode", None)
    return found if isinstance(found, str) else ""


def is_unreachable(error: BaseException) -> bool:
    """True if the database could not be asked, as opposed to refusing."""
    if isinstance(error, DBAPIError) and error.connection_invalidated:
        return True
    origin = _origin(error)
    if isinstance(origin, (OSError, TimeoutError, asyncpg.InterfaceError)):
        return True
    if isinstance(origin, asyncpg.InternalClientError):
        return True
    return sqlstate_of(error).startswith(_AWAY)


def is_transient(error: BaseException) -> bool:
    """True if retrying may well succeed at once: serialization failure, deadlock, a plan that was
    cached before a migration."""
    return sqlstate_of(error) in ("40001", "40P01") or isinstance(
        _origin(error), asyncpg.exceptions.InvalidCachedStatementError
    )


def is_database_error(error: BaseException) -> bool:
    """True if the database or the connection to it is to blame: wait, and retry. That includes a
    pool that handlers have exhausted."""
    known = (DBAPIError, PoolTimeout, asyncpg.PostgresError)
    return is_unreachable(error) or isinstance(error, known) or isinstance(_origin(error), known)


def is_refusal(error: BaseException) -> bool:
    """True if the database refused, or Python can't hold its answer, because of the content of a
    row: a retry would fail the same way."""
    if isinstance(_origin(error), (UnicodeDecodeError, MemoryError)):
        return True
    return sqlstate_of(error).startswith(_OF_A_ROW) and not is_unreachable(error)
