"""After a crash: which events are being attempted, written down in the leased row beforehand.

If this process vanishes too, the next holder knows whom to suspect: ``fault/quarantine.py``.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..connection.errors import is_unreachable

if TYPE_CHECKING:
    from collections.abc import Sequence

    import anyio

    from ..connection.connections import Connections, Query
    from ..connection.statements import SuspectStatements
    from ..handler.delivery import InFlight
    from ..lease.lease import Lease
    from ..position.progress import Progress


log: logging.Logger = logging.getLogger("sa_outbox.consumer")


@dataclass(slots=True)
class CrashNotes:
    """The notes of one loop."""

    _connections: Connections
    _statements: SuspectStatements
    _lease: Lease
    _progress: Progress
    _lock: anyio.Lock
    """That of the leased row."""
    noted: set[int]
    """Positions that are among the suspects in the leased row, or may be."""
    _unmarked: set[int] = field(default_factory=set)
    """Of these, what was noted here, and not attempted alone."""

    async def record_lost(self) -> None:
        """For the audit: the attempts that an earlier holder began, and that came to no end. Not
        for lack of that may a listener stand still: an event that it can't read is a suspect."""
        if self.noted:
            term = {name: self._lease.term[name] for name in ("name", "part", "token")}
            try:
                await self._connections.rows(self._statements.record_lost, **term)
            except Exception as error:
                if is_unreachable(error):
                    raise
                log.warning("attempts that came to no end are not in the audit: %s", type(error))

    async def note(self, items: Sequence[InFlight]) -> None:
        """Write down that *items* are about to be attempted, while others are."""
        positions = [item.position for item in items if item.position not in self.noted]
        if positions:
            self._unmarked.update(positions)
            await self._suspect(self._statements.note, positions, positions=positions)

    async def mark(self, item: InFlight) -> int:
        """Count that *item* is about to be attempted alone. Returns in how many terms it was, and
        came to no end."""
        position = item.position
        self._unmarked.discard(position)
        row = await self._suspect(self._statements.mark, [position], suspect=position)
        count: int = row["marks"]
        return count

    async def _suspect(self, query: Query, whom: list[int], **values: object) -> Any:
        async with self._lock:
            # Before: if the answer is lost, it may be written.
            self.noted.update(whom)
            saved = self._progress.saved
            stand = {"old": saved.position, "revision": saved.revision}
            rows = await self._connections.rows(query, **self._lease.term, **stand, **values)
        if not rows:
            raise self._lease.lost()
        return rows[0]

    async def take_back(self) -> None:
        """Delete the notes on events that no task has anymore: they are no suspects."""
        noted = sorted(self._unmarked & self.noted)
        if noted:
            absolve = self._statements.absolve
            await self._connections.rows(absolve, **self._lease.term, positions=noted)
            self.noted.difference_update(noted)

    async def forget_crashes(self) -> None:
        """All that was in flight when a holder of the listener died is settled."""
        term, query = self._lease.term, self._statements.forget
        if query is not None:
            whose = {name: term[name] for name in ("name", "part", "token")}
            await self._connections.rows(query, **whose)

    def absolved(self, items: Sequence[InFlight]) -> list[int]:
        """Positions of those that are no suspects any more once *items* are settled."""
        noted = self.noted
        return [item.position for item in items if item.position in noted and item.was_attempted]

    def absolve(self, items: Sequence[InFlight]) -> None:
        """The outcomes of *items* are committed."""
        self.noted.difference_update(self.absolved(items))
