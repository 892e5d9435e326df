"""Changing the partitions of the log, without keeping writers waiting: make, drop, adopt.

Each step is one statement that takes its locks for the moment, or gives up after some milliseconds
and is tried again, with a pause in which everybody who queued behind it goes on. It looks at
everything again under its lock, so any number of processes may try. docs/retention.md has the
argument.
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
from sa_outbox.sql import catch_all
from sa_outbox.sql import horizon as horizon_sql
from sa_outbox.sql import log_partitions as sql

from .bounds import Bounds, Layout
from .connections import Query
from .horizon import Horizon

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sqlalchemy import TextClause

    from sa_outbox.observe import Observation
    from sa_outbox.tables import Tables

    from .connections import Connection

PATIENCE = (10, 20, 30, 50, 50, 80, 100, 100)
"""Milliseconds that each try waits for a lock, and keeps those waiting who come after it."""
PAUSE = 0.2
"""Seconds between two tries, about."""
COPIED_AT_ONCE = 5_000
MOST_UNDER_LOCK = 500
"""Events that are copied while nobody writes: some milliseconds."""

_NOT_NOW = (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError)
_NOT_SO = (
    asyncpg.CheckViolationError,
    asyncpg.DuplicateTableError,
    asyncpg.InvalidObjectDefinitionError,
    asyncpg.UniqueViolationError,
)
"""Somebody was quicker: what is there now is looked at the next time."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """How far the log has come."""

    last: int
    """The highest id that was drawn."""
    size: int
    """Ids in a partition."""
    owner: str


class LogKeeper:
    """Works on one connection, which it keeps: what it remembers of writers is of this server."""

    def __init__(
        self, connection: Connection, tables: Tables, tell: Callable[[Observation], object]
    ) -> None:
        self._connection = connection
        self._tables = tables
        self._tell = tell
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
        """Drop a partition that nobody needs; False: somebody does, or it could not be had."""

        def build(patience: int) -> TextClause:
            return sql.drop(
                self._tables,
                one.name,
                one.low,
                one.high,
                older_than=older_than,
                patience=patience,
            )

        async def is_gone() -> bool:
            return one.name not in (await self.layout()).names

        if not await self._patiently(f"drop {one.name}", build, is_gone):
            return False
        self._tell(PartitionDropped(one.name, one.low, one.high))
        return True

    async def make(self, one: Bounds, drawn: Drawn, rest: str) -> bool:
        def build(patience: int) -> TextClause:
            return sql.make(
                self._tables,
                one.name,
                one.low,
                one.high,
                rest=rest,
                owner=drawn.owner,
                patience=patience,
            )

        async def is_there() -> bool:
            return one in (await self.layout()).partitions

        if not await self._patiently(f"make {one.name}", build, is_there):
            return False
        self._tell(PartitionMade(one.name, one.low, one.high))
        return True

    async def tidy(self, layout: Layout) -> None:
        """Drop tables that were being filled, when there is nothing left to fill them with."""
        for one in layout.filling:
            await self._discard(one.name)

    async def adopt(self, rest: str, low: int) -> bool:
        """Give the events of the catch-all, which begin at *low*, partitions of their own.

        They are copied to tables that nobody sees, thousands at once, as far as they are final;
        when only a few are missing, these tables take the place of the catch-all.
        """
        try:
            return await self._adopt(rest, low)
        except asyncpg.UndefinedTableError:  # another process has finished it
            return False

    async def _adopt(self, rest: str, low: int) -> bool:
        horizon, moved, tries = Horizon(), 0, 0
        while tries < len(PATIENCE):
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
                pieces, rest, PATIENCE[tries]
            ):
                self._tell(CatchAllEmptied(tuple(one.name for one in pieces), moved))
                return True
            tries += 1
            await _pause()
        self._tell(RetentionWaits("adopt the catch-all", tries))
        return False

    async def _pieces(self, rest: str, low: int, drawn: Drawn) -> list[Bounds]:
        """A partition for each event that is in the catch-all, and for those that come next."""
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
        for one in filling:  # left by somebody who died, when partitions were of another size
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
        """Copy some events; None: another process is at it."""
        # The last id, the writers, then the read: see consumer/horizon.py.
        last = (await self.drawn()).last
        holders = {row[0] for row in await self._connection.rows(self._holders)}
        final = horizon.look(last, holders).final
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
        query = catch_all.uncopied(self._tables, _plain(pieces), rest=rest, most=MOST_UNDER_LOCK)
        left: int = await self._connection.value(Query(query))
        return left <= MOST_UNDER_LOCK

    async def _take_place(self, pieces: list[Bounds], rest: str, patience: int) -> bool:
        query = catch_all.adopt(
            self._tables, _plain(pieces), rest=rest, most=MOST_UNDER_LOCK, patience=patience
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
        for patience in PATIENCE:
            try:
                await self._connection.run(Query(build(patience)))
            except _NOT_NOW:
                await _pause()
                continue
            except _NOT_SO:
                return False
            except asyncpg.InsufficientPrivilegeError as error:
                self._tell(RetentionRefused(step, str(error)))
                return False
            return await is_done()
        self._tell(RetentionWaits(step, len(PATIENCE)))
        return False


def _clash(one: Bounds, other: Bounds) -> bool:
    overlap = one.low < other.high and other.low < one.high
    return one != other and (overlap or one.name == other.name)


def _plain(pieces: list[Bounds]) -> list[tuple[str, int, int]]:
    return [(one.name, one.low, one.high) for one in pieces]


async def _pause() -> None:
    await anyio.sleep(PAUSE * uniform(0.5, 1.5))  # noqa: S311 - no secret
