"""Whether what this process remembers of the database is still true.

A lagging standby is promoted, or a server with ``synchronous_commit=off`` crashes: it comes back
without its last commits. Then what a process remembers (what it saved, how far it read) belongs to
a history that no longer exists. Ids are drawn a second time, for other events, and a process that
believes it has read them would skip them.

Every connection ends with its server. So from the moment one ends unexpectedly, memory is in doubt:
no horizon snapshot is used and nothing is settled until memory was compared with the database:

1. Each row under a lease of ours with what we saved there. Every write raises its revision, so a
   row that lost one has a lower one.
2. The newest event that was read with the log. It is still there with its ``event_id``: then its
   id was never free again, nor was any below it. (The sequence's own record is in the WAL before
   the commit that uses its ids, so it can't be behind an event that is there. For the same reason
   no row can have come further than the log: both are of one WAL.)

A difference means a lost term: drop it, claim it again, start from the row. Where a pooler hides a
change of server, the next renewal detects the first difference and the next horizon read the
second.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from uuid import UUID

    from ..position.horizon import Horizon
    from .lease import Lease

DOUBT_CHECK_SECONDS = 0.1
"""Seconds between two checks of the lease while memory is in doubt."""


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest event that this process has read."""

    position: int
    event_id: UUID


def is_gone(newest: Newest, found: UUID | None, *, drawn: int | None, sure: bool) -> bool:
    """Whether the commit of *newest* is lost. *found*: the event that has its id now.

    Retention or an operator may have deleted it: while no connection has ended (*sure*), or its id
    was not *drawn* yet, the two can be distinguished. After an outage a deleted event counts as
    lost: then listeners start from their rows, which is always correct.
    """
    if found is not None:
        return found != newest.event_id
    if drawn is not None and drawn < newest.position:
        return True
    return not sure


class Continuity:
    def __init__(self, horizon: Horizon) -> None:
        self.era: int = 0
        """How often memory has been in doubt."""
        self.is_sure: bool = True
        """What is remembered was compared with the database since it was last in doubt."""
        self._horizon = horizon
        self._changed = anyio.Event()
        self._is_closed = False
        self._followers: list[Callable[[], None]] = []

    def follow(self, doubted: Callable[[], None]) -> None:
        """Have *doubted* called when memory becomes doubtful, to have it compared."""
        self._followers.append(doubted)

    def doubt(self) -> None:
        """A connection has ended, or the server may have changed for another reason."""
        self.era += 1
        self.is_sure = False
        self._horizon.forget()
        for doubted in self._followers:
            doubted()

    def confirm(self, era: int) -> bool:
        """Memory was compared, and what differed is dropped. False if it is in doubt again."""
        self.is_sure = self.is_sure or era == self.era
        self._wake()
        return self.is_sure

    @contextmanager
    def compared(self) -> Iterator[None]:
        """Until the end of this somebody compares. After it nobody waits for that."""
        self._is_closed = False
        try:
            yield
        finally:
            self._is_closed = True
            self._wake()

    async def sure(self, lease: Lease) -> None:
        """Wait until memory is known to be right. Raises :class:`LeaseLost` if it is not for this
        term, or if that can't be established in time."""
        while not self.is_sure:
            if self._is_closed or lease.has_ended():
                raise lease.lost()
            with anyio.move_on_after(DOUBT_CHECK_SECONDS):
                await self._changed.wait()
        if lease.is_outdated:
            raise lease.lost()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()
