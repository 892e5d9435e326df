"""One operation of a person on one listener: its rows locked, its cursors placed, the audit."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from sa_outbox.errors import ListenerNotFound
from sa_outbox.sql import operating, searching

from .asking import Asking
from .events import first_id_since
from .operator import wake

if TYPE_CHECKING:
    from uuid import UUID

    from sqlalchemy import Connection

    from sa_outbox.tables import Tables

    from .operator import Operator

To: TypeAlias = int | datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class Move:
    """Of one partition's cursor."""

    partition: int
    before: int
    position: int


class Moving:
    """One operation on one listener."""

    def __init__(
        self,
        connection: Connection,
        tables: Tables,
        name: str,
        operator: Operator,
        channel: str | None,
    ) -> None:
        self.asking = Asking(connection, tables)
        self._connection = connection
        self.tables = tables
        self.name = name
        self._operator = operator
        self._channel = channel

    def lock(self) -> list[Any]:
        """The rows of its partitions. Raises :class:`ListenerNotFound`."""
        rows = self.asking.rows(operating.lock(self.tables), name=self.name)
        if not rows:
            raise ListenerNotFound(f"the database knows no listener {self.name!r}")
        return rows

    def first_id(self, to: To | Literal["beginning"]) -> int:
        """Of what is to come again."""
        if to == "beginning":
            return 1
        if isinstance(to, datetime):
            found = first_id_since(self._connection, self.tables, to)
            return self._ceiling() + 1 if found is None else found
        return max(1, to)

    def last_id(self, to: To | Literal["now"]) -> int:
        """Of what is to be passed by: never above what is visible."""
        ceiling = self._ceiling()
        if to == "now":
            return ceiling
        if isinstance(to, datetime):
            found = first_id_since(self._connection, self.tables, to)
            return ceiling if found is None else min(ceiling, found - 1)
        return min(ceiling, to)

    def place(
        self, *, added: str = "{}", removed: str = "{}", kept: str = "{}"
    ) -> tuple[Move, ...]:
        rows = self.asking.rows(
            operating.place(self.tables), name=self.name, added=added, removed=removed, kept=kept
        )
        moves = (Move(**row) for row in rows)
        return tuple(sorted(moves, key=lambda each: each.partition))

    def record(
        self,
        action: str,
        detail: dict[str, Any] | None = None,
        *,
        event_id: UUID | None = None,
        event_type: str | None = None,
    ) -> None:
        """In the audit, whatever its setting; and tell the consumers."""
        self.asking.rows(
            operating.record(self.tables),
            name=self.name,
            action=action,
            who=self._operator.who,
            detail=json.dumps({**(detail or {}), "why": self._operator.why}),
            event_id=event_id,
            event_type=event_type,
        )
        wake(self._connection, self.tables, self._channel)

    def _ceiling(self) -> int:
        found: int | None = self.asking.rows(searching.ends(self.tables))[0]["last"]
        return found or 0
