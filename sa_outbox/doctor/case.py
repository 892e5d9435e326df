"""What every check is given."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from sa_outbox.database.tables import tables
from sa_outbox.operations.endpoints import served_endpoints
from sa_outbox.operations.overview import Overview, overview

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection

    from sa_outbox.database.tables import Tables
    from sa_outbox.settings import Names


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """The thresholds above which something is reported. In seconds unless stated otherwise."""

    held: float = 10.0
    """A transaction that wrote an event and has been open this long holds the horizon."""
    paused: float = 3600.0
    expired: float = 86_400.0
    """A key that expired this long ago should have been deleted."""
    clock: float = 5.0
    """Difference between this machine's clock and the database's."""
    connections: float = 0.8
    """Fraction of the connections available to ordinary roles."""
    bytes: int = 1_048_576
    """Bytes of the listeners' table beyond what its rows need."""


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
        """The listeners of webhook endpoints, and whether each is to be served."""
        return served_endpoints(self.connection, self.tables)

    @cached_property
    def attended(self) -> frozenset[str]:
        """Listeners that a live consumer works on."""
        alive = self.overview.consumers
        return frozenset(name for each in alive for name in (*each.listeners, *each.queues))

    def command(self, *words: str) -> str:
        """One of our commands, for these tables."""
        return shlex.join(["sa-outbox", *words, *self.names.options])


def in_words(seconds: float) -> str:
    """A duration for people: ``3 min``, ``2.5 h``."""
    for size, name in ((86_400.0, "days"), (3600.0, "h"), (60.0, "min")):
        if seconds >= size:
            return f"{seconds / size:.3g} {name}"
    return f"{seconds:.3g} s"
