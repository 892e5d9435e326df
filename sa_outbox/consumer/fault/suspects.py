"""Events in flight when a connection was lost: which of them is to blame. Pure.

A lost connection says nothing about the event in flight: servers restart, networks break, operators
end sessions. Losing it repeatedly with the same event in flight does. The first losses are free and
make the event a suspect, which is attempted in a session of its own. Each further loss is charged:
the event owes an attempt with that error, which is written before its handler is called again. A
suspect that is done is cleared.

In memory only: charges are written the usual way, as soon as the database answers. A process that
dies forgets the free losses, and its death is counted separately.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, TypeAlias

import anyio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence
    from uuid import UUID

Key: TypeAlias = "tuple[str, int, UUID]"
"""The listener's name, the event's position, and the event: after a failover that lost it, another
one may stand at the position, which is to blame for nothing."""

FREE_LOSSES = 1
"""Connections an event may lose while the server stays up; further losses are attempts."""
FREE_OUTAGES = 2
"""Consecutive outages at which an event may be in flight. At the next one it was the only suspect
in flight in this process, so that one is charged."""
FREE_TROUBLES = 2
"""How often the server may lack resources (memory, disk space) for an event."""
FREE_REFUSALS = 10
"""How often our settling statements for an event may be refused in its session."""
MAX_SUSPECTS = 10_000
"""How many suspects are remembered: beyond that, the oldest is forgotten."""


@dataclass(slots=True)
class Suspect:
    event_id: UUID
    losses: int = 0
    outages: int = 0
    """Consecutive outages at which it was in flight."""
    outage: int = 0
    """Number of the last one."""
    troubles: int = 0
    commits: int = 0
    """Commits of other events when it was last in trouble."""
    refusals: int = 0
    owed: BaseException | None = None


class Suspects:
    """The suspects of one process."""

    def __init__(self) -> None:
        self.commits = 0
        """Transactions of handlers that were committed: the server works."""
        self._found: dict[tuple[str, int], Suspect] = {}
        """By listener and position."""
        self._outage = 0
        self._over_at = -inf
        self.is_out: bool = False
        """The server became unreachable, and no session has reached it since."""
        self.exist: bool = False
        """Whether there are any, or the server is out. Read several times for each event."""
        self._turn = anyio.Lock()

    def __contains__(self, key: Key) -> bool:
        return self._known(key) is not None

    def concerns(self, keys: Sequence[Key]) -> bool:
        """Whether the connection has to be asked before these are attempted: one that comes from a
        pool may have been dead for long, which is nobody's doing."""
        return self.is_out or any(key in self for key in keys)

    def owed(self, key: Key) -> BaseException | None:
        """The error of an attempt that is to be counted, if one is."""
        found = self._known(key)
        return None if found is None else found.owed

    @asynccontextmanager
    async def turn(self, keys: Sequence[Key]) -> AsyncIterator[None]:
        """While an event that may have brought the server down is being tried, no other suspect is
        in flight: it is charged only for what it did itself."""
        if not self._takes_turns(keys):
            yield
            return
        async with self._turn:
            yield

    def answered(self, at: float) -> None:
        """A session has reached the server."""
        if self.is_out:
            self.is_out, self._over_at = False, at
            self.exist = bool(self._found)

    def lost(self, keys: Sequence[Key], error: BaseException, *, at: float, lived: bool) -> None:
        """A session was lost with these in flight, after *at*, when it was known to be alive.
        *lived*: the server was up all the time. If it was not, and that session is older than the
        end of the last outage, then this is the last outage, noticed late."""
        if not lived and not self.is_out and at > self._over_at:
            self.is_out = self.exist = True
            self._outage += 1
        for key in keys:
            suspect = self._suspect(key)
            if lived:
                suspect.losses += 1
                is_charged = suspect.losses > FREE_LOSSES
            else:
                is_charged = self._was_out(suspect)
            if is_charged and len(keys) == 1:
                suspect.owed = error

    def troubled(self, keys: Sequence[Key], error: BaseException) -> None:
        """The server, or another one that the handler used, could not do what it was asked to.
        Charged if other events succeed meanwhile."""
        for key in keys:
            suspect = self._suspect(key)
            suspect.troubles += 1
            alone = len(keys) == 1 and self.commits > suspect.commits
            if alone and suspect.troubles > FREE_TROUBLES:
                suspect.owed = error
            suspect.commits = self.commits

    def refused(self, keys: Sequence[Key], error: BaseException) -> None:
        """Our settling statements for these were refused in the handler's session."""
        for key in keys:
            suspect = self._suspect(key)
            suspect.refusals += 1
            if suspect.refusals > FREE_REFUSALS and len(keys) == 1:
                suspect.owed = error

    def paid(self, key: Key) -> None:
        """The attempt that was owed is written."""
        found = self._known(key)
        if found is not None:
            found.owed = None

    def clear(self, keys: Iterable[Key]) -> None:
        """These have come to their end, and what was lost at their positions."""
        for listener, position, _ in keys:
            self._found.pop((listener, position), None)
        self.exist = self.is_out or bool(self._found)

    def _known(self, key: Key) -> Suspect | None:
        listener, position, event_id = key
        found = self._found.get((listener, position))
        return found if found is not None and found.event_id == event_id else None

    def _suspect(self, key: Key) -> Suspect:
        found = self._known(key)
        if found is None:
            listener, position, event_id = key
            if len(self._found) >= MAX_SUSPECTS:
                del self._found[next(iter(self._found))]
            found = self._found[listener, position] = Suspect(event_id, commits=self.commits)
            self.exist = True
        return found

    def _was_out(self, suspect: Suspect) -> bool:
        """Note that it was in flight at the current outage; return whether that is charged."""
        if suspect.outage == self._outage:
            return False  # noted already
        in_a_row = suspect.outage == self._outage - 1
        suspect.outages = suspect.outages + 1 if in_a_row else 1
        suspect.outage = self._outage
        return suspect.outages > FREE_OUTAGES

    def _takes_turns(self, keys: Sequence[Key]) -> bool:
        mine = max((each.outages for each in map(self._known, keys) if each), default=0)
        if mine >= FREE_OUTAGES:
            return True
        return mine > 0 and any(each.outages >= FREE_OUTAGES for each in self._found.values())
