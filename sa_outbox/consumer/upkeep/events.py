"""Delete single expired events where their partition is not dropped as a whole.

A busy log is emptied by dropping partitions: nothing to vacuum. A quiet one would keep its events
for as long as it takes to fill a partition, and one event scheduled for next year would keep all
those next to it. So events are deleted one by one, in small transactions, where nothing else
removes them in time: as soon as they expire in the partition being written to, and a tenth of
``retention`` later in full ones, since most of these are dropped before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import asyncpg

from sa_outbox.observe import RetentionRefused, RowsPurged
from sa_outbox.sql.log import deletion as sql
from sa_outbox.sql.log import partitions

from ..connection.connections import Query
from ..position.bounds import Bounds, is_ours

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sa_outbox.database.tables import Tables
    from sa_outbox.observe import Observation
    from sa_outbox.settings import ConsumerSettings

    from ..connection.connections import Connection
    from ..position.bounds import Layout
    from .partitions import Drawn

ROWS_AT_ONCE = 1_000
MAX_BATCHES = 200
"""Batches per round."""
MAX_PARTITIONS = 20
"""Partitions examined per round: more have such events only if someone needs them."""
MAX_EXAMINED = 100_000
"""Events of a partition that are examined to report what is held, or would be deleted."""
LONGER = 0.1
"""Fraction of ``retention`` for which a full partition may wait: it is dropped then, if it was
filled within that time."""


class EventTrim:
    def __init__(
        self, tables: Tables, settings: ConsumerSettings, emit: Callable[[Observation], object]
    ) -> None:
        self._tables = tables
        self._kept = settings.retention
        self._emit = emit
        self._alone = Query(partitions.alone(tables))

    async def run(self, connection: Connection, layout: Layout, drawn: Drawn) -> None:
        """Delete what is old and no longer needed, lowest ids first."""
        gone, batches = 0, MAX_BATCHES
        try:
            for one, seconds in await self._with_old_events(connection, layout, drawn):
                above, examined = -1, 0
                while batches:
                    batches -= 1
                    found = await self._batch(connection, one, seconds, above)
                    if found is None:
                        return  # another process is doing it
                    gone += found["gone"]
                    examined += found["examined"]
                    if not found["old"] or found["examined"] < ROWS_AT_ONCE:
                        break
                    above = found["last"]
                if not examined:
                    return  # all of them are needed, and so are those above
        except asyncpg.InsufficientPrivilegeError as error:
            self._emit(RetentionRefused("delete events", str(error)))
        finally:
            if gone:
                self._emit(RowsPurged(self._tables.outbox.name, gone))

    async def overdue(self, connection: Connection, layout: Layout, drawn: Drawn) -> list[Bounds]:
        """For each partition with old events, the range from the first to the last of them."""
        found = []
        for one, seconds in await self._with_old_events(connection, layout, drawn):
            query = Query(sql.overdue(self._tables, one.name))
            (row,) = await connection.rows(query, seconds=seconds, limit=MAX_EXAMINED)
            if row["first"] is not None:
                found.append(Bounds(one.name, row["first"], row["last"] + 1))
        return found

    async def count(self, connection: Connection, parts: Sequence[Bounds], drawn: Drawn) -> int:
        """How many of these events would be deleted now; bounded per partition."""
        total = 0
        for one in parts:
            query = Query(sql.trimmable(self._tables, one.name))
            limits = {"seconds": self._seconds(one, drawn), "limit": MAX_EXAMINED}
            total += await connection.value(query, above=one.low - 1, **limits)
        return total

    async def _with_old_events(
        self, connection: Connection, layout: Layout, drawn: Drawn
    ) -> list[tuple[Bounds, float]]:
        """Partitions whose first event is older than the seconds given with it."""
        found: list[tuple[Bounds, float]] = []
        for one in layout.partitions:
            if self._kept is None or one.low > drawn.last or len(found) == MAX_PARTITIONS:
                break
            if not is_ours(one.name, self._tables.outbox.name):
                continue
            seconds = self._seconds(one, drawn)
            try:
                age = await connection.value(Query(sql.oldest(self._tables, one.name)))
            except asyncpg.UndefinedTableError:  # dropped meanwhile
                continue
            if age is not None and age < seconds:
                break  # those above it are younger still
            if age is not None:
                found.append((one, seconds))
        return found

    def _seconds(self, one: Bounds, drawn: Drawn) -> float:
        assert self._kept is not None  # noqa: S101 - for the type checker
        is_full = one.high <= drawn.last + 1
        return self._kept.total_seconds() * (1 + LONGER * is_full)

    async def _batch(
        self, connection: Connection, one: Bounds, seconds: float, above: int
    ) -> Any | None:
        """The result for some events; None: another process is changing the log."""
        query = Query(sql.trim(self._tables, one.name))
        async with connection.transaction():
            if not await connection.value(self._alone):
                return None
            limits = {"seconds": seconds, "limit": ROWS_AT_ONCE}
            return (await connection.rows(query, above=above, **limits))[0]
