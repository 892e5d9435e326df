"""One round of maintenance: create partitions ahead, remove old events, purge rows; report
blockers.

An event may go when it is older than ``retention`` and nobody needs it: docs/retention.md has the
invariant. ``service.py`` runs a round each minute, ``sa-outbox prune`` runs one on demand.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import asyncpg

from sa_outbox.observe import RetentionHeld, RetentionRefused
from sa_outbox.sql.log import partitions as sql

from ..connection.connections import Query
from ..position.bounds import is_ours, reach
from .events import EventTrim
from .partitions import LogPartitions
from .rows import RowPurge

if TYPE_CHECKING:
    from collections.abc import Callable

    from sa_outbox.database.tables import Tables
    from sa_outbox.observe import Observation
    from sa_outbox.settings import ConsumerSettings

    from ..connection.connections import Connection
    from ..position.bounds import Bounds, Layout
    from .partitions import Drawn

MAX_EXAMINED = 200
"""Old partitions per round for which we check who needs them."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a round would do, and what it would leave."""

    droppable: tuple[Bounds, ...]
    held: tuple[RetentionHeld, ...]
    ahead: tuple[Bounds, ...]
    """Partitions to be created."""
    deletable: int
    """Events that are deleted one by one, counted up to a bound."""
    in_rest: int | None
    """The lowest id in the catch-all; None: it is empty, as it should be."""
    nobody: bool
    """No listener is registered: nobody has passed anything, so nothing is removed."""
    expired: dict[str, int] = field(default_factory=dict)
    """Rows that have expired, by table."""


class MaintenanceRound:
    def __init__(
        self, tables: Tables, settings: ConsumerSettings, emit: Callable[[Observation], object]
    ) -> None:
        self._tables = tables
        self._settings = settings
        self._emit = emit
        self._purging = RowPurge(tables, settings, emit)
        self._trimming = EventTrim(tables, settings, emit)

    async def run(self, connection: Connection, rate: float = 0.0) -> tuple[RetentionHeld, ...]:
        """Do a whole round, at *rate* events per second; return what blocks retention.

        The partitions belong to the owner. What another role may not do there is reported, and the
        rest of the round is done.
        """
        keeper = LogPartitions(connection, self._tables, self._emit)
        held: tuple[RetentionHeld, ...] = ()
        try:
            held = await self._keep_log(connection, keeper, rate)
        except asyncpg.InsufficientPrivilegeError as error:
            self._emit(RetentionRefused("look at the partitions", str(error)))
        await self._purging.run(connection)
        return held

    async def _keep_log(
        self, connection: Connection, keeper: LogPartitions, rate: float
    ) -> tuple[RetentionHeld, ...]:
        await self._make_ahead(keeper, rate)
        outlook = await self.look(connection)
        kept = self._settings.retention
        if kept is not None:
            for one in outlook.droppable:
                if not await keeper.drop(one, kept.total_seconds()):
                    break  # else writers would wait just as long for the next one
            await self._trimming.run(connection, await keeper.layout(), await keeper.drawn())
        return outlook.held

    async def look(
        self, connection: Connection, *, rate: float = 0.0, count: bool = False
    ) -> Outlook:
        """What there is to do. Changes nothing, and locks nothing."""
        keeper = LogPartitions(connection, self._tables, self._emit)
        drawn, layout = await keeper.drawn(), await keeper.layout()
        ahead = self._missing(layout, drawn, rate)
        in_rest = None if layout.rest is None else await keeper.lowest(layout.rest)
        nobody = not await connection.rows(Query(sql.registered(self._tables)))
        old = [] if nobody else (await self._old(connection, layout, drawn))[:MAX_EXAMINED]
        partly = [] if nobody else await self._trimming.overdue(connection, layout, drawn)
        droppable: list[Bounds] = []
        held: dict[str, list[tuple[Bounds, Any]]] = {}
        for one in old:
            needs = await self._needs(connection, one)
            for row in needs:
                held.setdefault(row["listener"], []).append((one, row))
            if not needs:
                droppable.append(one)
        whole = {one.name for one in old}
        for one in partly:
            if one.name not in whole:
                for row in await self._needs(connection, one):
                    if row["why"] != "delivery":  # that keeps only its own event
                        held.setdefault(row["listener"], []).append((one, row))
        going = {one.name for one in droppable}
        left = [one for one in partly if one.name not in going]
        return Outlook(
            droppable=tuple(droppable),
            deletable=await self._trimming.count(connection, left, drawn) if count else 0,
            held=tuple(_held(name, needs) for name, needs in sorted(held.items())),
            ahead=tuple(ahead),
            in_rest=in_rest,
            nobody=nobody,
            expired=await self._purging.count(connection) if count else {},
        )

    async def _make_ahead(self, keeper: LogPartitions, rate: float) -> None:
        layout = await keeper.layout()
        if layout.rest is None:
            return  # verify() reports it, with its fix
        low = await keeper.lowest(layout.rest)
        if low is not None:
            if not await keeper.adopt(layout.rest, low):
                return
            layout = await keeper.layout()
        if layout.filling:
            await keeper.tidy(layout)
        drawn = await keeper.drawn()
        unfit = layout.unfit(drawn.last, drawn.size, self._tables.outbox.name)
        for one in unfit:
            if not await keeper.drop_unused(one):
                break
        layout = await keeper.layout() if unfit else layout
        for one in self._missing(layout, drawn, rate):
            if layout.rest is None or not await keeper.make(one, drawn, layout.rest):
                break

    def _missing(self, layout: Layout, drawn: Drawn, rate: float) -> list[Bounds]:
        high = reach(drawn.last, drawn.size, rate)
        return layout.missing(drawn.last + 1, high, drawn.size, self._tables.outbox.name)

    async def _needs(self, connection: Connection, one: Bounds) -> list[Any]:
        return await connection.rows(Query(sql.who_needs(self._tables, one.low, one.high)))

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
            except asyncpg.UndefinedTableError:  # another process was faster
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
