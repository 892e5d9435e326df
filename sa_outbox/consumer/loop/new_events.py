"""The next events of the log for one listener; the batch after them is read while they are handled.

Why reading ahead loses nothing. A read starts after a snapshot, never before it (``position/
horizon.py``), and a read ahead does too: it starts when everything before it is taken in, after the
latest snapshot of that moment. While it waits, what it showed does not become untrue. Ids that were
final when it started stay final. Other ids that it did not show become holes when it is taken in,
and stay holes until a read after a later snapshot shows them, or shows that nobody can fill them.
That includes an event that is committed meanwhile, unless it is above that snapshot's ceiling,
where the next read finds it. Nothing counts as read before it is taken in, so a batch can be
dropped: it is read again.

It is dropped when memory was in doubt since (``lease/continuity.py``: the log may be another one),
and when a barrier was set or lifted. With its loop it is dropped when that stops or the lease is
lost. After a crash nothing is read ahead.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any

import anyio

from ..connection.connections import Steady
from ..connection.errors import Doubted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..connection.connections import Lending
    from ..lease.continuity import Continuity
    from ..lease.lease import Lease
    from ..position.horizon import Horizon, HorizonSnapshot
    from ..position.progress import Progress
    from .reader import Batch, Reader

AHEAD_SECONDS = 1.0
"""The next batch is read ahead if the one before was taken in less than this ago. Slower handlers
would get their events as they were minutes ago."""


class NewEvents:
    def __init__(
        self,
        reader: Reader,
        lease: Lease,
        progress: Progress,
        horizon: Horizon,
        continuity: Continuity,
        connections: Lending,
    ) -> None:
        self._reader = reader
        self._lease = lease
        self._progress = progress
        self._horizon = horizon
        self._continuity = continuity
        self._connections = connections
        self._read_snapshot = 0
        """Number of the snapshot whose events were taken in, or are about to be (``_more``)."""
        self._more = False
        self._batch: Batch | None = None
        """What was read and is not taken in yet."""
        self._read_for: tuple[int, int | None] = (0, None)
        """Era and barrier for which it was read."""
        self._read_at = self._took_at = 0.0
        self._reading: anyio.Event | None = None
        """Set when the read ahead that is under way has ended."""
        self._failure: Exception | None = None
        self._offered: Sequence[Any] = ()

    # Taking in

    def are_there(self, now: float) -> bool:
        """Whether ``take`` may find some."""
        if self._failure is not None:
            return True
        if not self._horizon.latest.number:
            return False  # before the first snapshot, and since a reconnect, nobody knows
        waits_until = self._reader.waits_until
        waited = waits_until is not None and now >= waits_until
        return self._more or self._horizon.latest.number > self._read_snapshot or waited

    def next_at(self) -> float | None:
        """When ``take`` has something to do, unless there is a snapshot before."""
        if self._failure is not None:
            return 0.0
        if self._reading is not None or not self._horizon.latest.number:
            return None
        return 0.0 if self._more else self._reader.waits_until

    async def take(self, room: int, now: float) -> tuple[list[Any], float]:
        """Up to *room* rows, and how many seconds ago they were read. None also while a read ahead
        is under way; whoever started it takes them then."""
        if self._reading is not None:
            return [], 0.0
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        if self._batch is None or self._read_for != self._now_read_for():
            self._batch = None
            await self._fetch(room)
        batch = self._batch
        if batch is None:
            return [], 0.0
        rows, self._more = self._reader.accept(batch, self._progress, room=room, now=now)
        if not batch.rows:
            self._batch, self._read_snapshot = None, batch.snapshot.number
        return rows, monotonic() - self._read_at

    def take_offered(self, room: int) -> list[Any]:
        """What was offered, if no id is missing from it."""
        offered, self._offered = self._offered, ()
        # Above a barrier nothing may be read; and what was read ahead comes before it.
        if not offered or self._lease.barrier is not None or self._more:
            return []
        return self._reader.take(offered, self._progress, room)

    # Reading ahead

    def starts_ahead(self, now: float) -> bool:
        """Whether the next batch is to be read now: then ``read_ahead`` must follow."""
        if self._reading is not None:
            return False
        took_at, self._took_at = self._took_at, now
        is_next = self._more and self._batch is None
        if is_next and now - took_at < AHEAD_SECONDS:
            self._reading = anyio.Event()
            return True
        return False

    async def read_ahead(self, size: int) -> None:
        """Read the next batch, of up to *size* events. What it raises, ``take`` raises."""
        ended = self._reading
        try:
            await self._fetch(size)
        except Exception as error:  # noqa: BLE001 - raised by ``take``
            self._failure = error
        finally:
            self._reading = None
            if ended is not None:
                ended.set()

    async def close(self) -> None:
        """Wait for a read that is under way: cut off, it would cost a connection."""
        if self._reading is not None:
            await self._reading.wait()

    async def _fetch(self, room: int) -> None:
        snapshot, read_for = self._horizon.latest, self._now_read_for()
        if not snapshot.number:
            return
        if (barrier := read_for[1]) is not None:
            snapshot = snapshot.up_to(max(barrier, self._progress.read_to))
        steady = Steady(self._connections, self._continuity)
        try:
            self._batch = await self._reader.fetch(steady, self._progress, snapshot, room=room)
        except Doubted:
            return  # another snapshot comes
        self._read_for, self._read_at = read_for, monotonic()

    def _now_read_for(self) -> tuple[int, int | None]:
        return self._continuity.era, self._lease.barrier

    # What others ask

    def show_more(self, snapshot: HorizonSnapshot) -> bool:
        """Whether *snapshot*, the latest, shows something that is not taken in. If it does not, a
        read after it would have nothing to ask for, and nobody has to wake the loop."""
        is_done = snapshot.ceiling <= self._progress.read_to and not self._offered
        if not is_done or self._more or self.are_open or not self._read_snapshot:
            return True
        self._read_snapshot = snapshot.number
        return False

    def offer(self, rows: Sequence[Any]) -> None:
        """Events that were read for all listeners, before the horizon is asked."""
        self._offered = rows

    @property
    def wait_at_a_hole(self) -> bool:
        return self._reader.hole is not None

    @property
    def are_open(self) -> bool:
        """Whether ids that were passed may still appear, or one is waited for."""
        return self._reader.hole is not None or bool(self._progress.holes.lows)

    @property
    def have_been_read(self) -> bool:
        """Whether some were, after the latest snapshot or an earlier one that is not forgotten."""
        return bool(self._read_snapshot and self._horizon.latest.number)

    def are_all_taken(self, number: int) -> bool:
        """Everything visible at that snapshot was taken in."""
        return self._read_snapshot >= number and not self._more and self._reader.hole is None

    def are_all_final(self, number: int) -> bool:
        """Everything visible at that snapshot, the last one, was taken in, and nothing is open."""
        return 0 < number == self._read_snapshot and not self._more and not self.are_open

    def may_meet_a_hole(self, number: int) -> bool:
        """Whether it has yet to read what that snapshot showed, and would wait at a hole in it."""
        return self._reader.waits_at_holes and self._read_snapshot < number
