"""What there is to filter by: names of listeners, and the values in the newest rows.

Each look is bounded, so a value that only older rows have is missing: filters accept others too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sa_outbox.sql.log.listener_partitions import listener_names
from sa_outbox.sql.people.choices import values_of

from .statement_runner import OperatorRunner

if TYPE_CHECKING:
    from sqlalchemy import Connection, Table

    from sa_outbox.database.tables import Tables

EXAMINED: Final = 10_000
"""Newest rows that are examined."""
MAX_CHOICES: Final = 200
"""Maximum of values of one kind."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Choices:
    """Values by what they are of; what a list has no filter for stays empty."""

    listeners: tuple[str, ...] = ()
    event_types: tuple[str, ...] = ()
    tenants: tuple[str, ...] = ()
    actions: tuple[str, ...] = ()
    actors: tuple[str, ...] = ()


def event_choices(connection: Connection, tables: Tables) -> Choices:
    """For a list of events."""
    look = _Look(connection, tables)
    return Choices(
        event_types=look.values(tables.outbox, "event_type"),
        tenants=look.values(tables.outbox, "tenant"),
    )


def dead_letter_choices(connection: Connection, tables: Tables) -> Choices:
    """For a list of dead letters, including those of listeners that are gone."""
    look, letters = _Look(connection, tables), tables.dead_letters
    return Choices(
        listeners=look.listeners(letters),
        event_types=look.values(letters, "event_type"),
        tenants=look.values(letters, "tenant"),
    )


def audit_choices(connection: Connection, tables: Tables) -> Choices:
    """For the audit."""
    look, audit = _Look(connection, tables), tables.audit
    return Choices(
        listeners=look.listeners(audit),
        actions=look.values(audit, "action"),
        actors=look.values(audit, "actor_id"),
    )


class _Look:
    def __init__(self, connection: Connection, tables: Tables) -> None:
        self._tables = tables
        rights = {"": "SELECT", "listeners": "SELECT", "dead_letters": "SELECT", "audit": "SELECT"}
        self._runner = OperatorRunner(connection, tables, rights)

    def values(self, table: Table, column: str) -> tuple[str, ...]:
        rows = self._runner.rows(values_of(table, column), examined=EXAMINED, most=MAX_CHOICES)
        return tuple(row["value"] for row in rows)

    def listeners(self, table: Table) -> tuple[str, ...]:
        """The registered ones, and those that *table* has besides."""
        known = {row["name"] for row in self._runner.rows(listener_names(self._tables))}
        return tuple(sorted(known | set(self.values(table, "listener"))))
