"""Running a statement on behalf of a person or a program: what can be fixed is in the error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy.exc import DBAPIError

from .faults import raise_if_fixable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import Connection
    from sqlalchemy.sql import Executable

    from .names import Names


class StatementRunner:
    """Runs statements in the caller's transaction. Errors hold no parameters."""

    def __init__(self, connection: Connection, names: Names, rights: Mapping[str, str]) -> None:
        """*rights*: what the role needs, by table, to be named in an error."""
        self._connection = connection
        self._names = names
        self._rights = rights

    def rows(self, statement: Executable, **values: object) -> list[Any]:
        try:
            result = self._connection.execute(statement, values)
            return list(result.mappings()) if result.returns_rows else []
        except DBAPIError as error:
            error.hide_parameters = True  # payloads, ids and keys, and errors end in logs
            raise_if_fixable(error, self._names, self._rights)
            raise
