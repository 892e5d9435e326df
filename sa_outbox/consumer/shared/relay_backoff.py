"""What a task knows of the other side of a relay: whether it is there, and when to try again."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

import anyio

from sa_outbox.observe import RelayAway, RelayBack
from sa_outbox.policy.backoff import FIRST_PAUSE_SECONDS, RELAY_PAUSE, Backoff

if TYPE_CHECKING:
    from collections.abc import Callable

    from sa_outbox.declare.listener import Listener
    from sa_outbox.errors import RelayUnavailable
    from sa_outbox.observe import Observation

    from .relay_outages import RelayOutages

MAX_PAUSE_SECONDS = RELAY_PAUSE.total_seconds()


class RelayBackoff:
    def __init__(
        self, listener: Listener, emit: Callable[[Observation], object], outages: RelayOutages
    ) -> None:
        own = None if listener.forwarding is None else listener.forwarding.max_pause
        self._max_pause = MAX_PAUSE_SECONDS if own is None else own
        self._backoff: Backoff | None = None
        """From the first failure until it answers."""
        self._name = listener.name
        self._emit = emit
        self._outages = outages
        self.pause: float = 0.0
        """Seconds to wait before the next event."""

    @property
    def is_away(self) -> bool:
        return self._backoff is not None

    def turned_away(self, error: RelayUnavailable) -> None:
        # Waits later, outside of the gate: other listeners have nothing to do with it.
        self._backoff = self._backoff or Backoff(FIRST_PAUSE_SECONDS, self._max_pause)
        self.pause = self._backoff.next()
        why = type(error if error.__cause__ is None else error.__cause__).__name__
        self._outages.turned_away(self._name, why, monotonic())
        self._emit(RelayAway(self._name, why, self.pause))

    def answered(self) -> None:
        """It was unreachable, and is not any more."""
        self._backoff = None
        self._emit(RelayBack(self._name))

    async def wait(self) -> None:
        pause, self.pause = self.pause, 0.0
        await anyio.sleep(pause)
