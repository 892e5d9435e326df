"""Reading a listener's next events: which of them, is decided by the horizon."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from sa_outbox.event.row import EVENT_TYPE, ID, KEY, MATCHES, PAYLOAD
from sa_outbox.sql.log import reads

from ..connection.connections import Query
from ..fault.refusals import Reads
from ..position.horizon import NOTHING
from ..position.partition import partition_of

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
        if row[ID] <= edge:
            continue
        if row[ID] != edge + 1:
            return rows[:index], edge, edge + 1
        edge = row[ID]
    return rows, edge, None


@dataclass(slots=True)
class Batch:
    """The answer to a read that started after *snapshot*."""

    rows: list[Any]
    """Those that were not taken in yet."""
    full: bool
    """The read met a limit: it says nothing of what is above its last row."""
    snapshot: HorizonSnapshot
    upper: int
    """Up to where it says what is visible, if it is not ``full``."""
    is_final: bool
    """Nothing can appear up to there: only rows of the listener's types were read."""


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
        self.reads: Reads = Reads(refusals)
        self._wants = listener.wants
        self._part, self._count = part, count
        self.waits_at_holes: bool = listener.order_mode.waits_at_holes
        self._gap_wait = None if listener.gap_wait is None else listener.gap_wait.total_seconds()
        self._filter = where = listener.payload_filter
        self._chosen = chosen = tables, listener.on, None if count == 1 else (part, count)
        self._final = Query(reads.read_final(*chosen, where=where))
        self._all = Query(reads.read_all(*chosen, where=where))
        self._with_gaps = Query(reads.read_with_gaps(*chosen, where=where))
        self.hole: int | None = None
        """The id that order="total" waits for."""
        self.waits_until: float | None = None
        """When the wait at the hole ends; None: no wait, or forever."""
        self._ceiling = 0
        self._waited_for = 0

    @cached_property
    def _final_carefully(self) -> Query:
        where = self._filter
        return Query(reads.read_final(*self._chosen, where=where, carefully=True))

    @cached_property
    def _all_carefully(self) -> Query:
        where = self._filter
        return Query(reads.read_all(*self._chosen, where=where, carefully=True))

    @cached_property
    def _with_gaps_carefully(self) -> Query:
        where = self._filter
        return Query(reads.read_with_gaps(*self._chosen, where=where, carefully=True))

    def take(self, rows: Sequence[Any], progress: Progress, room: int) -> list[Any]:
        """Of *rows* in the order of the log, read without a snapshot, those of the listener's
        types, filter and partition.

        Only if no id is missing from them: a hole takes a snapshot, and a read after it. What is
        above them is left to that too, and so are events that are too large for a plain read.
        """
        ids = [row[ID] for row in rows if row[ID] > progress.read_to]
        if progress.holes.lows or not ids or len(ids) > room:
            return []
        if ids[-1] - progress.read_to != len(ids):
            return []
        matching = [row for row in rows[-len(ids) :] if self._wants(row[EVENT_TYPE])]
        if self._filter is not None:
            matching = [row for row in matching if self._filter in row["met"]]
        if self._count > 1:
            part, count = self._part, self._count
            matching = [row for row in matching if partition_of(row[KEY], row[ID], count) == part]
        if None in [row[PAYLOAD] for row in matching]:
            return []
        progress.has_read(ids, [row[ID] for row in matching], upper=ids[-1], snapshot=NOTHING)
        self.hole = self.waits_until = None
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
        """The next rows of the listener's types, filter and partition, up to *room*; and whether
        there may be more.

        The read starts after *snapshot*, which is what makes it right.
        """
        batch = await self.fetch(connections, progress, snapshot, room=room)
        return self.accept(batch, progress, room=room, now=now)

    async def fetch(
        self, connections: Asked, progress: Progress, snapshot: HorizonSnapshot, *, room: int
    ) -> Batch:
        """Read what follows *progress*, after *snapshot*; nothing is changed until ``accept``."""
        holes = progress.holes.lows
        if not holes and progress.read_to < snapshot.final:
            rows, full = await self._read_final(connections, progress, snapshot, room)
            return Batch(rows, full=full, snapshot=snapshot, upper=snapshot.final, is_final=True)
        ceiling = snapshot.ceiling if len(holes) < MAX_HOLES else progress.read_to
        if ceiling <= progress.read_to and not holes:
            # If order="total" waits at a hole, then of a snapshot that was forgotten; the next one
            # shows it again.
            return Batch([], full=False, snapshot=snapshot, upper=progress.read_to, is_final=True)
        rows, full = await self._read_all(connections, progress, ceiling, room)
        upper = max(ceiling, progress.read_to)
        return Batch(rows, full=full, snapshot=snapshot, upper=upper, is_final=False)

    def accept(
        self, batch: Batch, progress: Progress, *, room: int, now: float
    ) -> tuple[list[Any], bool]:
        """Take in *batch*, or its first *room* rows: as if the read had had that limit. It was
        fetched for *progress*, which has not moved since, but by the rows before these.

        Returns what ``read`` does. Whenever this is called, what the read showed is true: ids that
        were final before it are final, and the others that it did not show are holes from now on,
        until a read after a later snapshot.
        """
        rows, batch.rows = batch.rows[:room], batch.rows[room:]
        full = batch.full or bool(batch.rows)
        upper = rows[-1][ID] if full else batch.upper
        if batch.is_final:
            self.hole = self.waits_until = None
        elif self.waits_at_holes:
            rows, upper = self._in_order(rows, upper, progress, batch.snapshot, now)
            if self.hole is not None:
                full, batch.rows = False, []  # nothing behind the hole is taken from this snapshot
        ids = [row[ID] for row in rows]
        if batch.is_final:
            full = full or batch.snapshot.ceiling > max(batch.snapshot.final, upper)
            if self._filter is None:
                progress.has_read(ids, ids, upper=upper, snapshot=batch.snapshot)
                return rows, full
        matching = [row for row in rows if row[MATCHES]]
        progress.has_read(ids, [row[ID] for row in matching], upper=upper, snapshot=batch.snapshot)
        return matching, full

    async def _read_final(
        self, connections: Asked, progress: Progress, snapshot: HorizonSnapshot, room: int
    ) -> tuple[list[Any], bool]:
        return await self.reads.rows(
            connections,
            self._final,
            lambda: self._final_carefully,
            cursor=progress.read_to,
            upper=snapshot.final,
            limit=room,
        )

    async def _read_all(
        self, connections: Asked, progress: Progress, ceiling: int, room: int
    ) -> tuple[list[Any], bool]:
        bounds: dict[str, Any]
        bounds = {"cursor": progress.read_to, "upper": ceiling, "limit": room}
        rows, holes = self.reads.rows, progress.holes
        if not holes.lows:
            return await rows(connections, self._all, lambda: self._all_carefully, **bounds)
        bounds |= {"lows": holes.lows, "highs": holes.highs}
        return await rows(connections, self._with_gaps, lambda: self._with_gaps_carefully, **bounds)

    def _in_order(
        self, rows: list[Any], upper: int, progress: Progress, snapshot: HorizonSnapshot, now: float
    ) -> tuple[list[Any], int]:
        if self.waits_until is not None and now >= self.waits_until:
            # Every hole below that ceiling was waited for so long; the later ones were not.
            self._waited_for = max(self._waited_for, self._ceiling)
        reach = min(max(snapshot.final, self._waited_for), upper)
        rows, edge, hole = up_to_a_hole(rows, read_to=progress.read_to, reach=reach)
        if hole != self.hole:
            self.hole, self._ceiling = hole, snapshot.ceiling
            wait = self._gap_wait
            self.waits_until = None if hole is None or wait is None else now + wait
        # A full read may end below what was read before: in a gap.
        return rows, min(upper, edge)
