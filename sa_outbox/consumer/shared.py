"""What all listeners of one consumer share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    import anyio

    from sa_outbox.observe import Observation, Observers
    from sa_outbox.settings import Audit, ConsumerSettings
    from sa_outbox.tables import Tables

    from .connections import Connections
    from .gate import Gate
    from .horizon import Horizon
    from .statements import Statements


@dataclass(frozen=True, kw_only=True, slots=True)
class Shared:
    connections: Connections
    statements: Statements
    tables: Tables
    settings: ConsumerSettings
    horizon: Horizon
    gate: Gate
    observers: Observers
    threads: anyio.CapacityLimiter
    redact: Callable[[str], str] | None
    audit: Audit
    alert_depth: int
    """0: a dead letter adds no alert."""
    lifetime: Callable[[str], timedelta]
    """How long a result of an event of this type is kept."""
    async_sessions: Callable[[], Any]
    """Makes an ``AsyncHandlerSession``."""
    sync_sessions: Callable[[], Any] | None
    """Makes a ``HandlerSession``; None when no listener needs one."""
    stop: Callable[[str], None]
    """Ask the whole consumer to stop, with the reason."""
    look_again: Callable[[], None]
    """Ask for another look, soon: something is open that nobody may tell of when it ends."""
    progressed: Callable[[], None]
    """Something was settled, or a listener has caught up: for those who wait in ``drain``."""
    withheld: set[str] = field(default_factory=set)
    """Listeners that wait, because the database is a copy: ``copies.py``."""

    def tell(self, observation: Observation) -> None:
        self.observers.tell(observation)

    @property
    def save_every(self) -> float:
        """Seconds after which a cursor that only passed other listeners' events is saved."""
        return self.settings.lease_duration.total_seconds() / 3
