"""Waking one task, or all that wait; a gate for many, or for one alone."""

from __future__ import annotations

from contextlib import asynccontextmanager
from time import monotonic
from typing import TYPE_CHECKING, Literal

import anyio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

By = Literal["start", "notify", "poll", "reconnect", "open events"]
"""Why the horizon is read."""

ALONE = 0.2
"""Fraction of the process's time available to those who have to be alone."""
IDLE_CHECK_SECONDS = 0.025
"""Seconds between two checks whether the others use their time."""


class AutoResetEvent:
    """Set by many, awaited by one: sets that were not seen yet count as one."""

    def __init__(self) -> None:
        self._event = anyio.Event()

    def ring(self) -> None:
        self._event.set()

    async def wait(self, seconds: float | None = None) -> bool:
        """Wait until it is set, at most *seconds*; return whether it was."""
        if seconds is None:
            await self._event.wait()
        else:
            with anyio.move_on_after(max(seconds, 0)):
                await self._event.wait()
        rung = self._event.is_set()
        if rung:
            self._event = anyio.Event()
        return rung


class HorizonBell:
    """Asks for a read of the horizon: anybody rings, one service reads. Several rings before the
    next read count as one; the last reason is reported."""

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


class Broadcast:
    """Wakes all who wait for it at the moment; who comes later waits for the next one."""

    def __init__(self) -> None:
        self._event = anyio.Event()

    def ring(self) -> None:
        self._event.set()
        self._event = anyio.Event()

    async def wait(self) -> None:
        await self._event.wait()


class Share:
    """Whose turn it is: for each second that the gate was closed, it stays open for some. Pure."""

    def __init__(self, alone: float = ALONE) -> None:
        self._open_for = (1 - alone) / alone
        self.open_until: float = 0.0
        """Until then the time belongs to the others."""

    def was_closed(self, since: float, until: float) -> None:
        self.open_until = until + (until - since) * self._open_for


class ExclusiveGate:
    """Handlers of a process pass through it: concurrently, or, while a crash is investigated, one
    with nothing else in flight, so that it is blamed only for what it did itself.

    While one is alone all others wait, of any listener. So all who need to be alone get, in total,
    a bounded share of the time: after each, the gate stays open for the others, four times as long
    as it was closed. Less, if nobody uses it.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self.inside: int = 0
        self._alone = anyio.Lock()
        self.is_closed: bool = False
        """Whether one is alone inside, or wants to be."""
        self._changed = Broadcast()
        self._clock = clock
        self._share = Share()
        self._left = 0

    async def enter(self) -> None:
        while self.is_closed:
            await self._changed.wait()
        self.inside += 1

    def leave(self) -> None:
        self.inside -= 1
        self._left += 1
        if self.is_closed and not self.inside:
            self._changed.ring()

    @asynccontextmanager
    async def alone(self, unless: Callable[[], bool] | None = None) -> AsyncIterator[bool]:
        """Wait for a turn and until nobody is inside, and let nobody in. False: *unless* became
        true before the turn came."""
        async with self._alone:
            if not await self._turn(unless):
                yield False
                return
            began = self._clock()
            self.is_closed = True
            try:
                while self.inside:
                    await self._changed.wait()
                yield True
            finally:
                self.is_closed = False
                self._share.was_closed(began, self._clock())
                self._changed.ring()

    async def _turn(self, unless: Callable[[], bool] | None) -> bool:
        """Leave the others their time. True at its end, or when they do not use it."""
        while not (unless is not None and unless()):
            rest = self._share.open_until - self._clock()
            if rest <= 0:
                return True
            left = self._left
            await anyio.sleep(min(rest, IDLE_CHECK_SECONDS))
            if not self.inside and left == self._left:
                return True
        return False
