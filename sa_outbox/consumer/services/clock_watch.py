"""Wakes what waits for a time when the clock is moved: a test does that, nobody else."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from anyio import TASK_STATUS_IGNORED

from sa_outbox.clock import clock

from ..shared.sync import AutoResetEvent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from anyio.abc import TaskStatus


class ClockWatcher:
    """Waits in this process are computed from seconds that the database answered with, so they have
    to be computed again."""

    def __init__(self, wake: Sequence[Callable[[], None]]) -> None:
        """*wake* is called after each move, in the thread of the event loop."""
        self._wake = wake

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        moved, loop = AutoResetEvent(), asyncio.get_running_loop()
        # Whoever moves it may be in another thread.
        with clock.watched(lambda: loop.call_soon_threadsafe(moved.ring)):
            task_status.started()
            while True:
                await moved.wait()
                for each in self._wake:
                    each()
