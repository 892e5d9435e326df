"""Change the partitions of the log without making writers wait: create, drop, adopt.

Each step is one statement that takes its locks only for a moment, or gives up after some
milliseconds and is retried after a pause, in which everyone who queued behind it continues. It
checks everything again under its lock, so any number of processes may try. docs/retention.md has
the argument.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from random import uniform
from typing import TYPE_CHECKING

import anyio
import asyncpg

from sa_outbox.observe import (
    CatchAllEmptied,
    PartitionDropped,
    PartitionMade,
    RetentionRefused,
    RetentionWaits,
)
from sa_outbox.sql.log import catch_all
from sa_outbox.sql.log import horizon as horizon_sql
from sa_outbox.sql.log import partitions as sql

from ..connection.connections import Query
from ..position.bounds import Bounds, Layout
from ..position.horizon import Horizon

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sqlalchemy import TextClause

    from sa_outbox.database.tables import Tables
    from sa_outbox.observe import Observation

    from ..connection.connections import Connection

LOCK_TIMEOUTS_MS = (10, 20, 30, 50, 50, 80, 100, 100)
"""Milliseconds that each try waits for a lock; writers that come after it wait as long."""
PAUSE_SECONDS = 0.2
"""Approximate seconds between two tries."""
COPIED_AT_ONCE = 5_000
MAX_UNDER_LOCK = 500
"""Events that are copied while nobody can write: some milliseconds."""

_NOT_NOW = (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError)
_NOT_SO = (
    asyncpg.CheckViolationError,
    asyncpg.DuplicateTableError,
    asyncpg.InvalidObjectDefinitionError,
    asyncpg.UniqueViolationError,
)
"""Another process was faster: the next round sees the result."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """How far the log has come."""

    last: int
    """The highest id that was drawn."""
    size: int
    """Ids per partition."""
    owner: str


class LogPartitions:
    """Works on one connection, which it keeps: writers it remembers belong to this server."""

    def __init__(
        self, connection: Connection, tables: Tables, emit: Callable[[Observation], object]
    ) -> None:
        self._connection = connection
        self._tables = tables
        self._emit = emit
        self._state = Query(sql.state(tables))
        self._partitions = Query(sql.partitions(tables))
        self._holders = Query(horizon_sql.holders(tables))
        self._alone = Query(sql.alone(tables))

    async def drawn(self) -> Drawn:
        row = (await self._connection.rows(self._state))[0]
        return Drawn(row["last"], row["size"], row["owner"])

    async def layout(self) -> Layout:
        for _ in range(5):  # one that is dropped meanwhile is an internal error
            with suppress(asyncpg.InternalServerError):
                return Layout.of(await self._connection.rows(self._partitions))
        return Layout.of(await self._connection.rows(self._partitions))

    async def lowest(self, name: str, low: int = 0) -> int | None:
        """The lowest id from *low* on in this partition."""
        query = Query(sql.lowest(self._tables, name))
        found: int | None = await self._connection.value(query, low=low)
        return found

    async def drop(self, one: Bounds, older_than: float) -> bool:
        """Drop a partition that nobody needs; False: someone does, or it is locked."""
        bounds = (one.name, one.low, one.high)
        if not await self._drop(
            f"drop {one.name}",
            one,
            lambda wait: sql.drop(self._tables, *bounds, older_than=older_than, patience=wait),
        ):
            return False
        self._emit(PartitionDropped(one.name, one.low, one.high))
        return True

    async def drop_unused(self, one: Bounds) -> bool:
        """Drop a partition for ids that were not drawn yet; False: the lock was not available."""
        return await self._drop(
            f"cut {one.name} anew",
            one,
            lambda wait: sql.drop_unused(self._tables, one.name, one.low, patience=wait),
        )

    async def _drop(self, step: str, one: Bounds, build: Callable[[int], TextClause]) -> bool:
        async def is_gone() -> bool:
            return one.name not in (await self.layout()).names

        return await self._patiently(step, build, is_gone)

    async def make(self, one: Bounds, drawn: Drawn, rest: str) -> bool:
        bounds = (one.name, one.low, one.high)

        def build(patience: int) -> TextClause:
            owner = drawn.owner
            return sql.make(self._tables, *bounds, rest=rest, owner=owner, patience=patience)

        async def is_there() -> bool:
            return one in (await self.layout()).partitions

        if not await self._patiently(f"make {one.name}", build, is_there):
            return False
        self._emit(PartitionMade(one.name, one.low, one.high))
        return True

    async def tidy(self, layout: Layout) -> None:
        """Drop tables that were being filled, when nothing is left to fill them with."""
        for one in layout.filling:
            await self._discard(one.name)

    async def adopt(self, rest: str, low: int) -> bool:
        """Give the catch-all's events, which begin at *low*, partitions of their own.

        They are copied to detached tables, thousands at a time, as far as they are final; when only
        a few are missing, these tables replace the catch-all.
        """
        try:
            return await self._adopt(rest, low)
        except asyncpg.UndefinedTableError:  # another process has finished it
            return False

    async def _adopt(self, rest: str, low: int) -> bool:
        horizon, moved, tries = Horizon(), 0, 0
        while tries < len(LOCK_TIMEOUTS_MS):
            drawn = await self.drawn()
            pieces = await self._pieces(rest, low, drawn)
            # None are missing: another process has finished it.
            if not pieces or not await self._begin(pieces, drawn):
                return False
            copied = await self._copy(pieces, rest, horizon)
            if copied is None:
                return False
            moved += copied
            if copied >= COPIED_AT_ONCE:
                continue
            if await self._few_are_left(pieces, rest) and await self._take_place(
                pieces, rest, LOCK_TIMEOUTS_MS[tries]
            ):
                self._emit(CatchAllEmptied(tuple(one.name for one in pieces), moved))
                return True
            tries += 1
            await _pause()
        self._emit(RetentionWaits("adopt the catch-all", tries))
        return False

    async def _pieces(self, rest: str, low: int, drawn: Drawn) -> list[Bounds]:
        """A partition for each event in the catch-all, and for those that come next."""
        layout = await self.layout()
        found: dict[int, Bounds] = {}
        prefix = self._tables.outbox.name
        at: int | None = low
        while at is not None:
            pieces = layout.missing(at, at + 1, drawn.size, prefix)
            found |= {one.low: one for one in pieces}
            at = await self.lowest(rest, pieces[-1].high if pieces else at + 1)
        ahead = layout.missing(drawn.last + 1, drawn.last + drawn.size, drawn.size, prefix)
        found |= {one.low: one for one in ahead}
        return [found[each] for each in sorted(found)]

    async def _begin(self, pieces: list[Bounds], drawn: Drawn) -> bool:
        filling = (await self.layout()).filling
        for one in filling:  # left by a process that died, when partitions had another size
            if any(_clash(one, piece) for piece in pieces):
                await self._discard(one.name)
        for one in pieces:
            if one in filling:
                continue

            def build(patience: int, one: Bounds = one) -> TextClause:
                return catch_all.begin(
                    self._tables,
                    one.name,
                    one.low,
                    one.high,
                    owner=drawn.owner,
                    patience=patience,
                )

            async def is_there(one: Bounds = one) -> bool:
                return one in (await self.layout()).filling

            if not await self._patiently(f"begin {one.name}", build, is_there):
                return False
        return True

    async def _copy(self, pieces: list[Bounds], rest: str, horizon: Horizon) -> int | None:
        """Copy some events; None: another process is doing it."""
        # The last id, the writers, then the read: see consumer/position/horizon.py.
        last = (await self.drawn()).last
        rows = await self._connection.rows(self._holders)
        holders = {row["virtualtransaction"] for row in rows}
        final = horizon.observe(last, holders).final
        copied = 0
        async with self._connection.transaction():
            if not await self._connection.value(self._alone):
                return None
            for one in pieces:
                query = Query(catch_all.copy(self._tables, one.name, one.low, one.high, rest=rest))
                room = COPIED_AT_ONCE - copied
                copied += await self._connection.value(query, final=final, limit=room)
                if copied >= COPIED_AT_ONCE:
                    break
        return copied

    async def _few_are_left(self, pieces: list[Bounds], rest: str) -> bool:
        query = catch_all.uncopied(self._tables, _plain(pieces), rest=rest, most=MAX_UNDER_LOCK)
        left: int = await self._connection.value(Query(query))
        return left <= MAX_UNDER_LOCK

    async def _take_place(self, pieces: list[Bounds], rest: str, patience: int) -> bool:
        query = catch_all.adopt(
            self._tables, _plain(pieces), rest=rest, most=MAX_UNDER_LOCK, patience=patience
        )
        try:
            await self._connection.run(Query(query))
        except (*_NOT_NOW, *_NOT_SO):
            return False
        return set(pieces) <= set((await self.layout()).partitions)

    async def _discard(self, name: str) -> None:
        async def is_gone() -> bool:
            return all(one.name != name for one in (await self.layout()).filling)

        await self._patiently(
            f"discard {name}",
            lambda patience: catch_all.discard(self._tables, name, patience=patience),
            is_gone,
        )

    async def _patiently(
        self,
        step: str,
        build: Callable[[int], TextClause],
        is_done: Callable[[], Awaitable[bool]],
    ) -> bool:
        for patience in LOCK_TIMEOUTS_MS:
            try:
                await self._connection.run(Query(build(patience)))
            except _NOT_NOW:
                await _pause()
                continue
            except _NOT_SO:
                return False
            except asyncpg.InsufficientPrivilegeError as error:
                self._emit(RetentionRefused(step, str(error)))
                return False
            return await is_done()
        self._emit(RetentionWaits(step, len(LOCK_TIMEOUTS_MS)))
        return False


def _clash(one: Bounds, other: Bounds) -> bool:
    overlap = one.low < other.high and other.low < one.high
    return one != other and (overlap or one.name == other.name)


def _plain(pieces: list[Bounds]) -> list[tuple[str, int, int]]:
    return [(one.name, one.low, one.high) for one in pieces]


async def _pause() -> None:
    await anyio.sleep(PAUSE_SECONDS * uniform(0.5, 1.5))  # noqa: S311 - not a secret
