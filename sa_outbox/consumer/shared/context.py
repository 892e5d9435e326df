"""The settings, connections, statements and observers that one consumer's loops share."""

from __future__ import annotations

from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..fault.refusals import Refusals
from ..fault.suspects import Suspects
from .relay_outages import RelayOutages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import timedelta

    import anyio

    from sa_outbox.database.tables import Tables
    from sa_outbox.observe import Observers
    from sa_outbox.settings import Audit, ConsumerSettings

    from ..connection.connections import Connections
    from ..connection.statements import Statements
    from ..lease.alibi import Alibis
    from ..lease.continuity import Continuity
    from ..position.horizon import Horizon
    from .stop_reason import StopReason
    from .sync import ExclusiveGate, HorizonBell
    from .tally import Tally


@dataclass(frozen=True, kw_only=True, slots=True)
class ConsumerContext:
    connections: Connections
    statements: Statements
    tables: Tables
    owner: str
    """The consumer's name, in the database and in observations."""
    settings: ConsumerSettings
    horizon: Horizon
    continuity: Continuity
    gate: ExclusiveGate
    alibis: Alibis
    observers: Observers
    threads: anyio.CapacityLimiter
    redact: Callable[[str], str] | None
    audit: Audit
    alert_depth: int
    """0: a dead letter adds no alert."""
    lifetime: Callable[[str], timedelta]
    """How long the result of an event of this type is kept."""
    async_sessions: Callable[[], Any]
    """Makes an ``AsyncHandlerSession``."""
    sync_sessions: Callable[[], Any] | None
    """Makes a ``HandlerSession``; None when no listener needs one."""
    stop: Callable[[StopReason, str], None]
    """Ask the whole consumer to stop, with the reason and a sentence for people."""
    bell: HorizonBell
    """Rung to have the horizon read."""
    progressed: Callable[[], None]
    """Something was settled, or a listener has caught up: wakes those who wait in ``drain``."""
    suspects: Suspects = field(default_factory=Suspects)
    """Events that were in flight when a session was lost."""
    withheld: set[str] = field(default_factory=set)
    """Listeners that wait, because the database is a copy: ``services/copies.py``."""
    outages: RelayOutages = field(default_factory=RelayOutages)
    """Relays whose receiver is unreachable."""
    tallies: list[Tally] = field(default_factory=list)
    """Drains that count what is settled."""
    limit: Tally | None = None
    """That of a drain with a limit: no loop hands out more than it has left."""

    refusals: defaultdict[str, Refusals] = field(default_factory=lambda: defaultdict(Refusals))
    """What the database refuses, by listener."""

    @contextmanager
    def tallied(self, tally: Tally) -> Iterator[None]:
        """*tally* counts meanwhile. That of the drain for which the consumer runs counts from its
        start to its end anyway."""
        if tally in self.tallies:
            yield
            return
        self.tallies.append(tally)
        try:
            yield
        finally:
            self.tallies.remove(tally)
