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
