"""Asking for a read of the horizon: anybody rings, one service reads."""

from __future__ import annotations

from typing import Literal

from .sync import AutoResetEvent

By = Literal["start", "notify", "poll", "reconnect", "open events"]


class HorizonBell:
    """Several rings before the next read count as one; the last reason is reported."""

    def __init__(self) -> None:
        self._event = AutoResetEvent()
        self._by: By = "start"

    def ring(self, by: By) -> None:
        """Have the horizon read soon."""
        self._by = by
        self._event.ring()

    async def wait(self, seconds: float) -> By | None:
        """Why it was rung; None: it was not, for that long."""
        return self._by if await self._event.wait(seconds) else None
