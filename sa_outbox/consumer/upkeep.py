"""One round of maintenance: partitions ahead, old ones dropped, rows purged; and what holds back.

An event may go when it is older than ``retention`` and nobody needs it: docs/retention.md has the
invariant. ``retention.py`` runs a round each minute, ``sa-outbox prune`` one when it is asked to.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import asyncpg

from sa_outbox.observe import RetentionHeld
from sa_outbox.sql import log_partitions as sql

from .bounds import is_ours, reach
from .connections import Query
from .log_keeping import LogKeeper
from .purging import Purging

if TYPE_CHECKING:
    from collections.abc import Callable

    from sa_outbox.observe import Observation
    from sa_outbox.settings import ConsumerSettings
    from sa_outbox.tables import Tables

    from .bounds import Bounds, Layout
    from .connections import Connection
    from .log_keeping import Drawn

MOST_LOOKED_AT = 200
"""Old partitions of which it is asked in one round who needs them."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a round would do, and what it would leave."""

    droppable: tuple[Bounds, ...]
    held: tuple[RetentionHeld, ...]
    ahead: tuple[Bounds, ...]
    """Partitions that are to be made."""
    in_rest: int | None
    """The lowest id in the catch-all; None: it is empty, as it should be."""
    nobody: bool
    """No listener is registered: nobody has passed anything, so nothing goes."""
    expired: dict[str, int] = field(default_factory=dict)
    """Rows that have expired, by table."""


class Upkeep:
    def __init__(
        self, tables: Tables, settings: ConsumerSettings, tell: Callable[[Observation], object]
    ) -> None:
        self._tables = tables
        self._settings = settings
        self._tell = tell
        self._purging = Purging(tables, settings, tell)

    async def run(self, connection: Connection, rate: float = 0.0) -> tuple[RetentionHeld, ...]:
        """Do a whole round, with *rate* events a second; return what is held back."""
        keeper = LogKeeper(connection, self._tables, self._tell)
        await self._make_ahead(keeper, rate)
        outlook = await self.look(connection)
        kept = self._settings.retention
        if kept is not None:
            for one in outlook.droppable:
                if not await keeper.drop(one, kept.total_seconds()):
                    break  # nobody waits for the next one just as long
        await self._purging.run(connection, (await keeper.layout()).floor)
        return outlook.held

    async def look(
        self, connection: Connection, *, rate: float = 0.0, count: bool = False
    ) -> Outlook:
        """What there is to do. Changes nothing, and locks nothing."""
        keeper = LogKeeper(connection, self._tables, self._tell)
        drawn, layout = await keeper.drawn(), await keeper.layout()
        ahead = self._missing(layout, drawn, rate)
        in_rest = None if layout.rest is None else await keeper.lowest(layout.rest)
        nobody = not await connection.rows(Query(sql.registered(self._tables)))
        droppable: list[Bounds] = []
        held: dict[str, list[tuple[Bounds, Any]]] = {}
        old = [] if nobody else await self._old(connection, layout, drawn)
        for one in old[:MOST_LOOKED_AT]:
            query = Query(sql.who_needs(self._tables, one.low, one.high))
            needs = await connection.rows(query)
            for row in needs:
                held.setdefault(row["listener"], []).append((one, row))
            if not needs:
                droppable.append(one)
        return Outlook(
            droppable=tuple(droppable),
            held=tuple(_held(name, needs) for name, needs in sorted(held.items())),
            ahead=tuple(ahead),
            in_rest=in_rest,
            nobody=nobody,
            expired=await self._purging.count(connection) if count else {},
        )

    async def _make_ahead(self, keeper: LogKeeper, rate: float) -> None:
        layout = await keeper.layout()
        if layout.rest is None:
            return  # verify() says so, and how it is mended
        low = await keeper.lowest(layout.rest)
        if low is not None:
            if not await keeper.adopt(layout.rest, low):
                return
            layout = await keeper.layout()
        if layout.filling:
            await keeper.tidy(layout)
        drawn = await keeper.drawn()
        for one in self._missing(layout, drawn, rate):
            if layout.rest is None or not await keeper.make(one, drawn, layout.rest):
                break

    def _missing(self, layout: Layout, drawn: Drawn, rate: float) -> list[Bounds]:
        high = reach(drawn.last, drawn.size, rate)
        return layout.missing(drawn.last + 1, high, drawn.size, self._tables.outbox.name)

    async def _old(self, connection: Connection, layout: Layout, drawn: Drawn) -> list[Bounds]:
        """Partitions whose ids were all drawn, the last longer ago than ``retention``."""
        kept = self._settings.retention
        if kept is None:
            return []
        found = []
        for one in layout.partitions:
            if one.high > drawn.last + 1:
                break
            if not is_ours(one.name, self._tables.outbox.name):
                continue
            try:
                age = await connection.value(Query(sql.age(self._tables, one.name)))
            except asyncpg.UndefinedTableError:  # another process was quicker
                continue
            if age is not None and age < kept.total_seconds():
                break  # those above it are younger still
            found.append(one)
        return found


def _held(listener: str, needs: list[tuple[Bounds, Any]]) -> RetentionHeld:
    partitions = {one.name: one for one, _ in needs}
    return RetentionHeld(
        listener=listener,
        partitions=len(partitions),
        ids=sum(one.high - one.low for one in partitions.values()),
        position=min(row["position"] for _, row in needs),
        why=tuple(sorted({row["why"] for _, row in needs})),
        since=max(row["since"] for _, row in needs),
        paused=any(row["paused"] for _, row in needs),
    )
