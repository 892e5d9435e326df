"""What every part of the examination is given."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from sa_outbox.operations.endpoints import list_endpoints
from sa_outbox.operations.overview import Overview, overview
from sa_outbox.tables import tables

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection

    from sa_outbox.settings import Names
    from sa_outbox.tables import Tables


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """From where on something is worth telling. Seconds, where nothing else is said."""

    held: float = 10.0
    """A transaction that wrote an event and is open for so long holds the horizon."""
    paused: float = 3600.0
    expired: float = 86_400.0
    """A key that expired so long ago should have been deleted."""
    clock: float = 5.0
    """Difference between this machine and the database."""
    connections: float = 0.8
    """Part of those that ordinary roles may have."""
    bytes: int = 1_048_576
    """Of the listeners' table, above what its rows need."""


@dataclass(kw_only=True)
class Case:
    connection: Connection
    names: Names
    declared: frozenset[str] | None
    """Names of the listeners that the program declares; None: the program is not known."""
    thresholds: Thresholds
    now: Callable[[], float]
    tables: Tables = field(init=False)

    def __post_init__(self) -> None:
        self.tables = tables(self.names)

    @cached_property
    def overview(self) -> Overview:
        return overview(self.connection, self.tables)

    @cached_property
    def endpoints(self) -> dict[str, bool]:
        """Listeners of webhook endpoints, and whether these are to be served."""
        found = list_endpoints(self.connection, self.tables)
        return {each.listener: each.disabled_at is None for each in found}

    @cached_property
    def attended(self) -> frozenset[str]:
        """Listeners for which a consumer that is alive works."""
        alive = self.overview.consumers
        return frozenset(name for each in alive for name in (*each.listeners, *each.queues))

    def command(self, *words: str) -> str:
        """A command of ours, for these tables."""
        return shlex.join(["sa-outbox", *words, *self.names.options])


def in_words(seconds: float) -> str:
    """A span for people: ``3 min``, ``2.5 h``."""
    for size, name in ((86_400.0, "days"), (3600.0, "h"), (60.0, "min")):
        if seconds >= size:
            return f"{seconds / size:.3g} {name}"
    return f"{seconds:.3g} s"
