"""Many may be inside, or one alone."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Gate:
    """Handlers of a process go through it: side by side, or, when a crash is being looked into,
    one with nothing else in flight, so that only what it did itself can be blamed on it."""

    def __init__(self) -> None:
        self.inside = 0
        self._alone = anyio.Lock()
        self.is_closed = False
        """Whether one is alone inside, or wants to be."""
        self._changed = anyio.Event()

    async def enter(self) -> None:
        while self.is_closed:
            await self._changed.wait()
        self.inside += 1

    def leave(self) -> None:
        self.inside -= 1
        if self.is_closed and not self.inside:
            self._change()

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Wait until nobody is inside, and let nobody in."""
        async with self._alone:
            self.is_closed = True
            try:
                while self.inside:
                    await self._changed.wait()
                yield
            finally:
                self.is_closed = False
                self._change()

    def _change(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


class Bell:
    """Rung by many, heard by one: rings that were not heard yet are one ring."""

    def __init__(self) -> None:
        self._event = anyio.Event()

    def ring(self) -> None:
        self._event.set()

    async def wait(self, seconds: float | None = None) -> bool:
        """Wait for a ring, *seconds* at most; say whether there was one."""
        if seconds is None:
            await self._event.wait()
        else:
            with anyio.move_on_after(max(seconds, 0)):
                await self._event.wait()
        rung = self._event.is_set()
        if rung:
            self._event = anyio.Event()
        return rung
