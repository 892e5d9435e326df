"""What others ask a queue's holder to cancel: read when a notification says so, and regularly.

A request is a row of the delivery with the range's number. It goes with the delivery when the
holder knows of it. One that was made while its event was being settled is left over, and its
transaction may be committed long after that, when the holder is gone: so whoever works for the
queue deletes those whose range is gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..loop.loop import DeliveryLoop
    from ..shared.context import ConsumerContext
    from .range_source import RangeSource


class CancelRequests:
    """The requests for one queue, in one process."""

    def __init__(self, context: ConsumerContext, listener: str) -> None:
        self.wanted: bool = True
        """Whether to read the requests: also at the start, for those that were left over."""
        self._context = context
        self._listener = listener

    def announced(self) -> None:
        """Somebody has made one, perhaps for this process: they are read next."""
        self.wanted = True

    async def look(self, loops: Mapping[tuple[str, int], DeliveryLoop[RangeSource]]) -> None:
        """Read the requests and pass each on to the loop that has its event."""
        self.wanted = False
        try:
            await self._pass_on(loops)
        except BaseException:
            self.wanted = True
            raise

    async def _pass_on(self, loops: Mapping[tuple[str, int], DeliveryLoop[RangeSource]]) -> None:
        connections, statements = self._context.connections, self._context.statements.ranges
        rows = await connections.rows(statements.requested, listener=self._listener)
        for row in rows:
            loop = loops.get((self._listener, row["part"]))
            if loop is not None:
                loop.request_cancel(row["position"])
        if any(row["is_over"] for row in rows):
            await connections.rows(statements.forget_requests, listener=self._listener)
