"""Running a statement on behalf of a person or a program: what can be fixed is in the error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy.exc import DBAPIError

from .faults import raise_if_fixable
from .swallowed import abort_if_swallowed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Connection, CursorResult, Insert
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
        result = self._executed(statement, values)
        return list(result.mappings()) if result.returns_rows else []

    def add_events(self, insert: Insert, rows: Sequence[str], *, abort: Executable) -> None:
        """Add events, given as JSON objects. Raises :class:`NotWritten` if a rule or trigger on the
        log swallows any; then the transaction can only be rolled back."""
        written = self._executed(insert, {"document": f"[{','.join(rows)}]"}).rowcount
        connection, names = self._connection, self._names
        abort_if_swallowed(connection, names, expected=len(rows), written=written, abort=abort)

    def _executed(self, statement: Executable, values: dict[str, object]) -> CursorResult[Any]:
        try:
            return self._connection.execute(statement, values)
        except DBAPIError as error:
            error.hide_parameters = True  # payloads, ids and keys, and errors end in logs
            raise_if_fixable(error, self._names, self._rights)
            raise
