"""One operator change to one listener: lock its rows, place its cursors, write the audit."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from sa_outbox.sql.log import horizon
from sa_outbox.sql.people import listener_changes

from .events import first_id_since
from .known_names import unknown_listener
from .operator import wake
from .statement_runner import OperatorRunner

if TYPE_CHECKING:
    from uuid import UUID

    from sqlalchemy import Connection

    from sa_outbox.database.tables import Tables

    from .audit import Action
    from .operator import Operator

To: TypeAlias = int | datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class Move:
    """The move of one partition's cursor."""

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
        self.runner: OperatorRunner = OperatorRunner(connection, tables)
        self._connection = connection
        self.tables = tables
        self.name = name
        self._operator = operator
        self._channel = channel

    def lock(self) -> list[Any]:
        """Lock and return its partitions' rows. Raises :class:`ListenerNotFound`."""
        rows = self.runner.rows(listener_changes.lock(self.tables), name=self.name)
        if not rows:
            raise unknown_listener(self._connection, self.tables, self.name)
        return rows

    def first_id(self, to: To | Literal["beginning"]) -> int:
        """The first id to deliver again."""
        if to == "beginning":
            return 1
        if isinstance(to, datetime):
            found = first_id_since(self._connection, self.tables, to)
            return self._ceiling() + 1 if found is None else found
        return max(1, to)

    def last_id(self, to: To | Literal["now"]) -> int:
        """The last id to skip: never above what is visible."""
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
        rows = self.runner.rows(
            listener_changes.place(self.tables),
            name=self.name,
            added=added,
            removed=removed,
            kept=kept,
        )
        moves = (Move(**row) for row in rows)
        return tuple(sorted(moves, key=lambda each: each.partition))

    def record(
        self,
        action: Action,
        detail: dict[str, Any] | None = None,
        *,
        event_id: UUID | None = None,
        event_type: str | None = None,
    ) -> None:
        """Record it in the audit, whatever its setting, and notify the consumers."""
        self.runner.rows(
            listener_changes.record(self.tables),
            name=self.name,
            action=action,
            who=self._operator.who,
            detail=json.dumps({**(detail or {}), "why": self._operator.why}),
            event_id=event_id,
            event_type=event_type,
        )
        wake(self._connection, self.tables, self._channel)

    def _ceiling(self) -> int:
        """The highest id that was drawn: an explicitly chosen higher id must not make us skip later
        events."""
        (found,) = self.runner.rows(horizon.ceiling(self.tables))
        position: int = found["ceiling"]
        return position
