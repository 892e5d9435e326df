"""What others ask a queue's holder to cancel: looked for when they say so, and from time to time.

A request is a row of the delivery with the range's number. It goes with the delivery when the
holder knows of it. One that was made while its event was being settled is left over; so ranges are
remembered for a while after their end, and such rows deleted.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from .stint import Stint

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .cursor import Cursor
    from .gaps import Gaps
    from .lease import Lease
    from .shared import Shared

MOST_ENDED = 1000
"""Ranges that are remembered after their end."""


class Requests:
    """Of one queue, in one process."""

    def __init__(self, shared: Shared, listener: str) -> None:
        self.wanted = False
        """Whether to look for some."""
        self._shared = shared
        self._listener = listener
        self._ended: dict[int, tuple[float, Gaps]] = {}

    def ended(self, lease: Lease) -> None:
        """All of a range is settled, or it is somebody else's."""
        if lease.is_over and len(self._ended) < MOST_ENDED:
            remembered_for = self._shared.settings.lease_duration.total_seconds()
            self._ended[lease.part] = monotonic() + remembered_for, lease.gaps

    async def look(self, cursors: Mapping[tuple[str, int], Cursor]) -> None:
        """If it is wanted: pass the requests on to those who work."""
        if self.wanted:
            self.wanted = False
            try:
                await self._pass_on(cursors)
            except BaseException:
                self.wanted = True
                raise

    async def _pass_on(self, cursors: Mapping[tuple[str, int], Cursor]) -> None:
        now = monotonic()
        self._ended = {part: each for part, each in self._ended.items() if each[0] > now}
        over = {part: gaps for part, (_, gaps) in self._ended.items()}
        held = {part: cursor.lease.gaps for (_, part), cursor in cursors.items()}
        bounds = [(part, *each) for part, gaps in (over | held).items() for each in gaps]
        if not bounds:
            return
        parts, lows, highs = (list(column) for column in zip(*bounds, strict=True))
        connections, statements = self._shared.connections, self._shared.statements.ranges
        left_over: list[int] = []
        for row in await connections.rows(
            statements.requested, listener=self._listener, parts=parts, lows=lows, highs=highs
        ):
            cursor = cursors.get((self._listener, row["part"]))
            if isinstance(cursor, Stint):
                cursor.request_cancel(row["position"])
            else:
                left_over.append(row["position"])
        if left_over:
            await connections.rows(
                statements.forget_requests, listener=self._listener, positions=left_over
            )
