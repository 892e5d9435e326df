"""Run every check, part by part."""

from __future__ import annotations

from time import time
from typing import TYPE_CHECKING, TypeAlias

from sqlalchemy.exc import DBAPIError

from sa_outbox.errors import OutboxError

from . import (
    consumers,
    home,
    horizon,
    interference,
    leftovers,
    listeners,
    log,
    server,
    storage,
    structure,
)
from .case import Case, Thresholds
from .finding import Finding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sqlalchemy import Connection

    from sa_outbox.settings import Names

Part: TypeAlias = "Callable[[Case], Iterable[Finding]]"

OF_TABLES: dict[str, Part] = {
    "interference": interference.find,
    "home": home.find,
    "log": log.find,
    "storage": storage.find,
    "listeners": listeners.find,
    "consumers": consumers.find,
    "horizon": horizon.find,
    "leftovers": leftovers.find,
}
"""Checks that need the tables to exist."""
ALWAYS: dict[str, Part] = {"structure": structure.find, "server": server.find}
WITHOUT_TABLES = {
    "no-tables", "no-version", "tables-too-old", "tables-too-new", "table-missing",
    "table-shadowed", "table-foreign", "column-missing",
}  # fmt: skip
"""Findings after which the tables can't be queried."""
_WORST = ("error", "warning", "info")


def examine(
    connection: Connection,
    names: Names,
    *,
    declared: Iterable[str] | None = None,
    thresholds: Thresholds | None = None,
    now: Callable[[], float] = time,
) -> list[Finding]:
    """Every finding, worst first. Reads only, in the connection's transaction.

    *declared* are the names of the program's listeners; without them an orphan can't be
    distinguished from a listener whose consumers are down.
    """
    case = Case(
        connection=connection,
        names=names,
        declared=None if declared is None else frozenset(declared),
        thresholds=thresholds or Thresholds(),
        now=now,
    )
    found = [finding for part in ALWAYS for finding in _found(case, part, ALWAYS[part])]
    if not any(finding.code in WITHOUT_TABLES for finding in found):
        found += [each for part in OF_TABLES for each in _found(case, part, OF_TABLES[part])]
    return sorted(found, key=lambda each: _WORST.index(each.severity))


def _found(case: Case, name: str, part: Part) -> list[Finding]:
    """In a savepoint: a query that one check may not run does not break the others."""
    try:
        with case.connection.begin_nested():
            return list(part(case))
    except (DBAPIError, OutboxError) as error:
        if isinstance(error, DBAPIError) and error.connection_invalidated:
            raise
        lines = str(getattr(error, "orig", None) or error).strip().splitlines()
        return [
            Finding(
                code="not-examined",
                what=f"A part of the examination could not run: {name}.",
                fix="Run the doctor as the role that consumes, or as the owner of the tables.",
                evidence={"part": name, "error": type(error).__name__, "reason": lines[0][:200]},
            )
        ]
