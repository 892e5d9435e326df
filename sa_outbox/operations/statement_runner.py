"""Running statements on behalf of an operator, and the rights they need."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sa_outbox.database.statement_runner import StatementRunner

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import Connection

    from sa_outbox.database.tables import Tables

_RIGHTS: Final = {
    "": "SELECT",
    "listeners": "SELECT, UPDATE, DELETE",
    "consumers": "SELECT",
    "deliveries": "SELECT, INSERT, UPDATE, DELETE",
    "ranges": "SELECT, UPDATE, DELETE",
    "dead_letters": "SELECT, UPDATE",
    "audit": "SELECT, INSERT",
}


class OperatorRunner(StatementRunner):
    """Runs statements in the caller's transaction, and names an operator's rights if the database
    refuses one, unless *rights* lists others."""

    def __init__(
        self, connection: Connection, tables: Tables, rights: Mapping[str, str] = _RIGHTS
    ) -> None:
        super().__init__(connection, tables.names, rights)
