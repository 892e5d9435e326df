"""Reading a listener's next events: which of them, is decided by the horizon."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from sa_outbox.sql.log import reads

from ..connection.connections import Query
from ..position.horizon import NOTHING
from ..position.partition import partition_of
from ..shared.reads import Reads

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sa_outbox.database.tables import Tables
    from sa_outbox.declare.listener import Listener

    from ..connection.connections import Asked
    from ..fault.refusals import Refusals
    from ..position.horizon import HorizonSnapshot
    from ..position.progress import Progress

MAX_HOLES = 10_000
"""Ranges of holes above which nothing new is read until some are final: each save writes them."""


def up_to_a_hole(rows: list[Any], *, read_to: int, reach: int) -> tuple[list[Any], int, int | None]:
    """Of *rows* in the order of the log, those before the first hole above *reach*.

    Ids up to *reach* are final, or were waited for long enough: there holes do not count. Returns
    the rows, the last id that was reached, and the hole, if one was met.
    """
    edge = max(reach, read_to)
    for index, row in enumerate(rows):
        if row[0] <= edge:
            continue
        if row[0] != edge + 1:
            return rows[:index], edge, edge + 1
        edge = row[0]
    return rows, edge, None


class Reader:
    """Reads for one listener. Remembers at which hole ``order="total"`` stands, and since when."""

    def __init__(
        self,
        listener: Listener,
        tables: Tables,
        part: int = 0,
        count: int = 1,
        refusals: Refusals | None = None,
    ) -> None:
        self.reads = Reads(refusals)
        self._wants = listener.wants
        self._part, self._count = part, count
        self._waits_at_holes = listener.order_mode.waits_at_holes
        self._gap_wait = None if listener.gap_wait is None else listener.gap_wait.total_seconds()
        self._chosen = chosen = tables, listener.on, None if count == 1 else (part, count)
        self._final = Query(reads.read_final(*chosen))
        self._all = Query(reads.read_all(*chosen))
        self._with_gaps = Query(reads.read_with_gaps(*chosen))
        self.hole: int | None = None
        """The id that order="total" waits for."""
        self._since = 0.0
        self._ceiling = 0
        self._waited_for = 0

    @cached_property
    def _final_carefully(self) -> Query:
        return Query(reads.read_final(*self._chosen, carefully=True))

    @cached_property
    def _all_carefully(self) -> Query:
        return Query(reads.read_all(*self._chosen, carefully=True))

    @cached_property
    def _with_gaps_carefully(self) -> Query:
        return Query(reads.read_with_gaps(*self._chosen, carefully=True))

    def waits_until(self) -> float | None:
        """When the wait at the hole ends; None: no wait, or forever."""
        if self.hole is None or self._gap_wait is None:
            return None
        return self._since + self._gap_wait

    def take(self, rows: Sequence[Any], progress: Progress, room: int) -> list[Any]:
        """Of *rows* in the order of the log, read without a snapshot, those of the listener's types
        and partition.

        Only if no id is missing from them: a hole takes a snapshot, and a read after it. What is
        above them is left to that too.
        """
        ids = [row[0] for row in rows if row[0] > progress.read_to]
        if not ids or progress.holes or len(ids) > room or ids[-1] - progress.read_to != len(ids):
            return []
        matching = [row for row in rows[-len(ids) :] if self._wants(row[2])]
        if self._count > 1:
            part, count = self._part, self._count
            matching = [row for row in matching if partition_of(row[3], row[0], count) == part]
        progress.has_read(ids, [row[0] for row in matching], upper=ids[-1], snapshot=NOTHING)
        self.hole = None
        return matching

    async def read(
        self,
        connections: Asked,
        progress: Progress,
        snapshot: HorizonSnapshot,
        *,
        room: int,
        now: float,
    ) -> tuple[list[Any], bool]:
        """The next rows of the listener's types and partition, up to *room*; and whether there may
        be more.

        The read starts after *snapshot*, which is what makes it right.
        """
        if not progress.holes and progress.read_to < snapshot.final:
            return await self._read_final(connections, progress, snapshot, room)
        ceiling = snapshot.ceiling if len(progress.holes) < MAX_HOLES else progress.read_to
        if ceiling <= progress.read_to and not progress.holes:
            self.hole = None  # of a snapshot that was forgotten; the next one shows it again
            return [], False
        rows, full = await self._read_all(connections, progress, ceiling, room)
        upper = rows[-1][0] if full else max(ceiling, progress.read_to)
        if self._waits_at_holes:
            rows, upper = self._in_order(rows, upper, progress, snapshot, now)
        ids = [row[0] for row in rows]
        matching = [row for row in rows if row["matches"]]
        progress.has_read(ids, [row[0] for row in matching], upper=upper, snapshot=snapshot)
        return matching, full and self.hole is None

    async def _read_final(
        self, connections: Asked, progress: Progress, snapshot: HorizonSnapshot, room: int
    ) -> tuple[list[Any], bool]:
        rows, full = await self.reads.rows(
            connections,
            self._final,
            lambda: self._final_carefully,
            cursor=progress.read_to,
            upper=snapshot.final,
            limit=room,
        )
        upper = rows[-1][0] if full else snapshot.final
        ids = [row[0] for row in rows]
        progress.has_read(ids, ids, upper=upper, snapshot=snapshot)
        self.hole = None
        return rows, full or snapshot.ceiling > snapshot.final

    async def _read_all(
        self, connections: Asked, progress: Progress, ceiling: int, room: int
    ) -> tuple[list[Any], bool]:
        bounds: dict[str, Any]
        bounds = {"cursor": progress.read_to, "upper": ceiling, "limit": room}
        rows, holes = self.reads.rows, progress.holes
        if not holes:
            return await rows(connections, self._all, lambda: self._all_carefully, **bounds)
        bounds |= {"lows": holes.lows, "highs": holes.highs}
        return await rows(connections, self._with_gaps, lambda: self._with_gaps_carefully, **bounds)

    def _in_order(
        self, rows: list[Any], upper: int, progress: Progress, snapshot: HorizonSnapshot, now: float
    ) -> tuple[list[Any], int]:
        waits_until = self.waits_until()
        if waits_until is not None and now >= waits_until:
            # Every hole below that ceiling was waited for so long; the later ones were not.
            self._waited_for = max(self._waited_for, self._ceiling)
        reach = min(max(snapshot.final, self._waited_for), upper)
        rows, edge, hole = up_to_a_hole(rows, read_to=progress.read_to, reach=reach)
        if hole != self.hole:
            self.hole, self._since, self._ceiling = hole, now, snapshot.ceiling
        # A full read may end below what was read before: in a gap.
        return rows, min(upper, edge)
