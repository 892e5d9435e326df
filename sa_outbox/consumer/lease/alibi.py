"""Report that a process was alive: an expired lease is counted as a crash, and need not have been
one.

A process that lost its network looks dead. Another one takes over its leases and counts a crash,
against the term and against an event that was attempted alone in it. If the first process was awake
all the time and just could not reach the database, no event is to blame. So it reports that as soon
as the database answers, and what was counted for its terms is retracted.

A process that was not awake has no alibi: the counting exists for handlers that block the event
loop until the lease is lost. A suspended process has none either: the two can't be distinguished.
"""

from __future__ import annotations

from collections import deque
from time import monotonic
from typing import TYPE_CHECKING

import anyio
from anyio import TASK_STATUS_IGNORED

if TYPE_CHECKING:
    from collections.abc import Callable

    from anyio.abc import TaskStatus

    from ..connection.connections import Connections, Query
    from .lease import Lease

MAX_BEAT_SECONDS = 0.5
BEATS = 30
"""Minimum beats in the duration of a lease."""
LATE = 0.1
"""Fraction of a lease's duration by which a beat may be late without being counted: on a busy
machine all of them are late, and leases are still renewed."""
ASLEEP = 0.25
"""Fraction of a lease's duration for which the process may have been asleep, or its event loop
blocked: the rest was enough to renew it, had the database answered."""
MAX_TERMS = 10_000


class Pulse:
    """How long the event loop did not run when it should have."""

    def __init__(self, duration: float, clock: Callable[[], float] = monotonic) -> None:
        self._beat = min(MAX_BEAT_SECONDS, duration / BEATS)
        self._tolerated = LATE * duration
        self._remembered = 2 * duration
        self._clock = clock
        self._last = clock()
        self._late: deque[tuple[float, float]] = deque()
        """Late beats: when, and by how much."""

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        self._last = self._clock()
        task_status.started()
        while True:
            await anyio.sleep(self._beat)
            self.beats()

    def beats(self) -> None:
        now = self._clock()
        late = now - self._last - self._beat
        if late > self._tolerated:
            self._late.append((now, late))
        self._last = now
        while self._late and self._late[0][0] < now - self._remembered:
            self._late.popleft()

    def slept(self, since: float) -> float:
        """Seconds slept since then, including a beat that is overdue now."""
        overdue = self._clock() - self._last - self._beat
        overdue = overdue if overdue > self._tolerated else 0.0
        return overdue + sum(late for at, late in self._late if at >= since)


class Alibis:
    """Terms that this process lost while awake, until the database knows that it was alive."""

    def __init__(self, pulse: Pulse) -> None:
        self.pulse = pulse
        self.unreported: deque[tuple[Query, Lease]] = deque(maxlen=MAX_TERMS)

    def lost(self, lease: Lease, lived: Query) -> None:
        """Decide whether the events in flight may be blamed for the end of *lease*."""
        if self.pulse.slept(lease.renewed_at) > ASLEEP * lease.duration:
            lease.blamed()
        else:
            self.unreported.append((lived, lease))

    async def report(self, connections: Connections) -> None:
        """Retract what was counted for these terms. Passes on database errors; then it has to be
        retried."""
        while self.unreported:
            lived, lease = self.unreported[0]
            await connections.rows(lived, **lease.term)
            # Another call that waited for the same answer may have removed it.
            if self.unreported and self.unreported[0][1] is lease:
                self.unreported.popleft()
