"""What a hand knows of the other side of a relay: whether it is there, and when to try again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from sa_outbox.observe import RelayAway, RelayBack

if TYPE_CHECKING:
    from collections.abc import Callable

    from sa_outbox.errors import RelayUnavailable
    from sa_outbox.observe import Observation

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
_MOST = 30
"""Refusals that are counted: two to their power is a pause."""


class Rest:
    def __init__(self, listener: str, tell: Callable[[Observation], object]) -> None:
        self._listener = listener
        self._tell = tell
        self._refusals = 0
        self.pause = 0.0
        """Seconds to rest before the next event."""

    @property
    def is_away(self) -> bool:
        """It was, when it was last tried."""
        return self._refusals > 0

    def turned_away(self, error: RelayUnavailable) -> None:
        # Rests later, outside of the gate: other listeners have nothing to do with it.
        self.pause = min(FIRST_PAUSE * 2**self._refusals, LONGEST_PAUSE)
        self._refusals = min(self._refusals + 1, _MOST)
        why = error if error.__cause__ is None else error.__cause__
        self._tell(RelayAway(self._listener, type(why).__name__, self.pause))

    def answered(self) -> None:
        if self._refusals:
            self._refusals = 0
            self._tell(RelayBack(self._listener))

    async def wait(self) -> None:
        pause, self.pause = self.pause, 0.0
        await anyio.sleep(pause)
