"""Noticing that something blocks the event loop, while it does.

A blocked loop renews no lease, receives no notification and stops for no signal; and it can't
report that itself. So a thread probes it regularly, and reports its stack when it does not answer.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from time import monotonic
from typing import TYPE_CHECKING

from sa_outbox.observe import LoopBlocked

if TYPE_CHECKING:
    from datetime import timedelta
    from types import TracebackType

    from sa_outbox.observe import Observers

MAX_FRAMES = 30
"""Number of the innermost calls of a stack that are reported."""
MAX_CHARACTERS = 8_000
MAX_PROBE_INTERVAL_SECONDS = 1.0
"""Maximum seconds between two probes."""
JOIN_SECONDS = 5.0
"""Seconds to wait for the thread at the end. Only a slow observer makes it take that long."""


class Watchdog:
    """Watches the running event loop, from ``with`` to its end.

    ``LoopBlocked`` is emitted once for each time the loop is blocked, from the watchdog's thread:
    the loop itself could emit it only when it is over.
    """

    def __init__(self, blocked_after: timedelta, observers: Observers) -> None:
        self._blocked_after = blocked_after.total_seconds()
        self._observers = observers
        self._loop = asyncio.get_running_loop()
        self._watched = threading.get_ident()
        self._answered = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="sa_outbox watchdog", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self._stopping.set()
        self._answered.set()
        self._thread.join(JOIN_SECONDS)

    def _watch(self) -> None:
        while not self._stopping.wait(min(MAX_PROBE_INTERVAL_SECONDS, self._blocked_after / 4)):
            self._answered.clear()
            if self._stopping.is_set():
                return  # checked after clear(), otherwise the last set() could be lost
            asked_at = monotonic()
            try:
                self._loop.call_soon_threadsafe(self._answered.set)
            except RuntimeError:
                return  # the loop was closed without leaving the "with"
            if not self._answered.wait(self._blocked_after):
                stack = stack_of(self._watched)
                self._observers.emit(LoopBlocked(monotonic() - asked_at, stack))
                self._answered.wait()


def stack_of(thread: int) -> str:
    """What a thread is executing: its innermost calls, without values. Empty if it is gone."""
    frame = sys._current_frames().get(thread)  # noqa: SLF001 - documented, for debuggers like this
    if frame is None:
        return ""
    calls = traceback.extract_stack(frame, limit=MAX_FRAMES)
    for place, call in enumerate(calls):
        if call.filename == asyncio.events.__file__ and place + 1 < len(calls):
            calls = traceback.StackSummary.from_list(calls[place + 1 :])  # what the loop runs
            break
    return "".join(calls.format()).rstrip()[-MAX_CHARACTERS:]
