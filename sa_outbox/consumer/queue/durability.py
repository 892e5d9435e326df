"""Whether a claim of new events waits for the disk. Pure.

It need not, and then the handler starts a flush of the WAL earlier. A server that crashes may lose
such a claim, and with it everything that was committed later (one WAL). So its events are unclaimed
again, and nothing of them is settled: neither an outcome nor an effect of a handler's session.

What is lost besides is the note that somebody was at work on them, from which crashes are counted.
An event that takes down the server and its process at once, each time, must not lose it each time.
Invariant: a process claims an event without waiting at most once, and only if it was connected to
the server before the event was committed. After a crash of the server all connections are new, so
every process claims the event durably. (A pooler may hide the crash from a process that survives
it. That one claims it durably because it claimed it before.)

A process may outlive the crash and remember a claim that was lost, its own or another's. Why no
event is handled twice for that, and none is passed:

- Where the queue stands (``remembered.py``), and the events that are offered to go with it. Claims
  and moves of the cursor compare the revision of the queue's row. It is random: that of a lost
  write is on no row, whatever was written instead. All of it is dropped when a connection ends; if
  a pooler hides that, when a range is found missing, so that a drain waits for its events.
- The ids whose tenants' turn it is. They only choose among what the row has unclaimed. Dropped when
  a connection ends: they could be drawn again, for events of other types.
- Ranges, what was read of them, finished events, notes on suspects: all of it is written under the
  random token of a range. If that is gone, nothing is, and a new range of its number has another.
- The horizon: dropped when a connection ends, and what is ``connected_at`` here with it. What was
  claimed before makes claims durable, never the opposite.
- Events that the database refused: found by id and ``event_id``. How many events are claimed, and
  whether under the lock: of no consequence for which.

Listeners with an order claim and save durably; what was read ahead for them is dropped, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..position.horizon import Horizon


class ClaimDurability:
    def __init__(self, horizon: Horizon) -> None:
        self._horizon = horizon
        self._claimed_to = 0
        """The highest event that this process tried to claim."""

    def is_needed(self, lowest: int, highest: int) -> bool:
        """Whether a claim of events from *lowest* to *highest*, sent now, waits for the disk."""
        connected_at, claimed_to = self._horizon.connected_at, self._claimed_to
        self._claimed_to = max(claimed_to, highest)
        return connected_at is None or lowest <= max(connected_at, claimed_to)
