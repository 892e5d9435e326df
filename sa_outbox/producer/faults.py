"""Errors of the database without the row that they quote."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..database.faults import first_line

if TYPE_CHECKING:
    from sqlalchemy.exc import DBAPIError

QUOTING: Final = ("22", "23")
"""Error classes in whose details PostgreSQL quotes the row: bad data, broken constraints."""


class _RefusedError(Exception):
    """Replaces the driver's error, without the details that quote the event."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.sqlstate = self.pgcode = code


def without_data(error: DBAPIError, code: str) -> DBAPIError:
    refused = _RefusedError(first_line(error), code)
    return type(error)(error.statement, None, refused, hide_parameters=True)
