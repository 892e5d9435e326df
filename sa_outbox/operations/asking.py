"""Asking the database on behalf of a person: what can be mended is said in the error.

As ``place.Asking``, without what sessions need: a command should start at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sqlalchemy.exc import DBAPIError

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.sql import Executable

    from sa_outbox.tables import Tables

_RIGHTS: Final = {
    "": "SELECT",
    "listeners": "SELECT, UPDATE, DELETE",
    "consumers": "SELECT",
    "deliveries": "SELECT, INSERT, UPDATE, DELETE",
    "ranges": "SELECT, UPDATE, DELETE",
    "dead_letters": "SELECT, UPDATE",
    "audit": "SELECT, INSERT",
}


class Asking:
    """Runs statements in the caller's transaction. Errors hold no parameters."""

    def __init__(self, connection: Connection, tables: Tables) -> None:
        self._connection = connection
        self._tables = tables

    def rows(self, statement: Executable, **values: object) -> list[Any]:
        try:
            result = self._connection.execute(statement, values)
            return list(result.mappings()) if result.returns_rows else []
        except DBAPIError as error:
            from sa_outbox.producer.write import raise_if_mendable  # noqa: PLC0415 - loads the ORM

            error.hide_parameters = True  # payloads and keys, and errors end in logs
            raise_if_mendable(error, self._tables.names, _RIGHTS)
            raise
