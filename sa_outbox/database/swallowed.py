"""Noticing that a rule or a trigger on the log has swallowed events.

The server calls such an INSERT a success; only the number of rows that it reports tells. Whoever
adds events checks it here: sessions, and what this package adds itself.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from sqlalchemy.exc import DBAPIError

from ..errors import NotWritten

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.sql import Executable

    from .names import Names

_UNCOUNTED: Final = -1
"""What a driver that does not count rows reports."""


def raise_if_swallowed(names: Names, *, expected: int, written: int) -> None:
    """Raise :class:`NotWritten` if not as many events were written as given."""
    if written not in (expected, _UNCOUNTED):
        raise NotWritten(names.table(), expected=expected, written=written)


def abort_if_swallowed(
    connection: Connection, names: Names, *, expected: int, written: int, abort: Executable
) -> None:
    """Raise :class:`NotWritten` if not as many events were written as given; run *abort* first, so
    that nobody can commit what this transaction or savepoint wrote."""
    try:
        raise_if_swallowed(names, expected=expected, written=written)
    except NotWritten:
        with suppress(DBAPIError):
            connection.execute(abort)
        raise
