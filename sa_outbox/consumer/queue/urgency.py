"""Which events of a queue come before their turn: urgent ones, and those of tenants that others are
far ahead of."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any

from sa_outbox.sql.queue import claims

from ..connection.connections import Query

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sa_outbox.declare.listener import Listener

    from ..connection.connections import Asked
    from ..position.progress import Progress
    from ..shared.context import ConsumerContext
    from ..shared.reads import Reads

FAIR_SHARE = 0.1
"""Fraction of the time that may be spent on finding tenants whose events are far behind others'."""
FAIR_WINDOW = 200_000
"""Ids that such a read examines."""
TURNS = 1000
"""Events for which such a read determines the order: enough for several ranges, so that a tenant
with few events has them all handled before the next such read."""


class Urgency:
    def __init__(self, context: ConsumerContext, listener: Listener, reads: Reads) -> None:
        self._context = context
        self._reads = reads
        self._urgent = Query(claims.read_urgent(context.tables, listener.on))
        self._differ = Query(claims.differ(context.tables, listener.on))
        self._choose_turns = Query(claims.turns(context.tables, listener.on))
        self._turns: list[int] = []
        """Events to claim next, for several ranges: of each tenant the first, then the second."""
        self._fair_at = 0.0

    async def read(
        self, asked: Asked, old: Progress, size: int, upper: int, *, urgent: bool
    ) -> Sequence[Any]:
        """Urgent events up to the ceiling *upper*; or, now and then, the first of every tenant."""
        ranges = zip(old.holes.lows, old.holes.highs, strict=True)
        untaken = ",".join(f"[{low},{high}]" for low, high in ranges)
        first = min(old.holes.lows, default=old.read_to + 1)
        bounds: dict[str, Any]
        bounds = {"first": first, "cursor": old.read_to, "upper": upper}
        bounds["untaken"] = f"{{{untaken}}}"
        rows: list[Any] = []
        if urgent:
            rows = await self._reads.carefully(asked, self._urgent, "urgent", **bounds, limit=size)
        if rows:
            return rows
        began = monotonic()
        if began >= self._fair_at:
            bounds["window"] = FAIR_WINDOW
            differ = any(row["differ"] for row in await asked.rows(self._differ, **bounds))
            chosen = await asked.rows(self._choose_turns, **bounds, limit=TURNS) if differ else ()
            self._turns = [row["id"] for row in chosen]
            now = monotonic()
            self._fair_at = now + (now - began) / FAIR_SHARE
        # Some may have been claimed since, by others or by us.
        self._turns = [each for each in self._turns if each > old.read_to or each in old.holes]
        if not self._turns:
            return []
        read = self._context.statements.ranges.read_chosen
        return await self._reads.carefully(asked, read, "turns", ids=self._turns[:size])
