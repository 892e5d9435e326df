"""What a task knows of the other side of a relay: whether it is there, and when to try again."""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING

import anyio

from sa_outbox.observe import RelayAway, RelayBack
from sa_outbox.policy.backoff import RELAY_PAUSE

if TYPE_CHECKING:
    from collections.abc import Callable

    from sa_outbox.declare.listener import Listener
    from sa_outbox.errors import RelayUnavailable
    from sa_outbox.observe import Observation

    from .relay_outages import RelayOutages

FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.1, RELAY_PAUSE.total_seconds()
_MAX_DOUBLINGS = 30
"""Refusals that are counted: two to their power is a pause."""


@dataclass(slots=True)
class RelayBackoff:
    listener: Listener
    emit: Callable[[Observation], object]
    outages: RelayOutages
    refusals: int = 0
    """In a row, up to now: it is unreachable if there are any."""
    pause: float = 0.0
    """Seconds to rest before the next event."""

    def turned_away(self, error: RelayUnavailable) -> None:
        name, forwarding = self.listener.name, self.listener.forwarding
        own = None if forwarding is None else forwarding.max_pause
        longest = MAX_PAUSE_SECONDS if own is None else own
        # Rests later, outside of the gate: other listeners have nothing to do with it.
        self.pause = min(FIRST_PAUSE_SECONDS * 2**self.refusals, longest)
        self.refusals = min(self.refusals + 1, _MAX_DOUBLINGS)
        why = type(error if error.__cause__ is None else error.__cause__).__name__
        self.outages.turned_away(name, why, monotonic())
        self.emit(RelayAway(name, why, self.pause))

    def answered(self) -> None:
        """It was unreachable, and is not any more."""
        self.refusals = 0
        self.emit(RelayBack(self.listener.name))

    async def wait(self) -> None:
        pause, self.pause = self.pause, 0.0
        await anyio.sleep(pause)
