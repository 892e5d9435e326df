"""Finding out which event it is that can't be read, or can't be set aside.

All of it is tried on connections of its own and rolled back; nothing is written here. What is found
is remembered in ``Refusals``, and the read that failed is done again without it.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio

from sa_outbox.event.row import EVENT_ID, ID
from sa_outbox.sql.log import reads
from sa_outbox.sql.log.large_events import BUDGET

from ..connection.connections import Query
from ..connection.errors import is_refusal, is_unreachable
from ..fault.bisection import Bisection
from ..fault.refusals import LOST_READS, PARTS, Part, Refusal

if TYPE_CHECKING:
    from ..connection.connections import Connection
    from ..fault.refusals import ParkRefused, ReadRefused, Refusals
    from ..shared.context import ConsumerContext

PAUSE_SECONDS = (0.0, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 5.0, 5.0, 5.0, 5.0)
"""Seconds: how long the database may take to answer again when a read has ended its connection."""
Try: TypeAlias = Callable[[list[int]], Awaitable[int | None]]


class _RolledBackError(Exception):
    """Ends a transaction in which something was tried."""

    def __init__(self, rows: list[Any]) -> None:
        super().__init__()
        self.rows = rows


async def _tried(connection: Connection, query: Query, values: dict[str, Any]) -> None:
    async with connection.transaction():
        raise _RolledBackError(await connection.rows(query, **values))


class Isolation:
    """For one listener."""

    def __init__(self, context: ConsumerContext, listener: str, refusals: Refusals) -> None:
        self._context = context
        self._listener = listener
        self._refusals = refusals

    async def of_read(self, refused: ReadRefused) -> None:
        """Find what *refused* met. Raises its error if the events have nothing to do with it."""
        known = self._refusals.known
        rows = await self._tried(refused.query, **refused.values, bare=True)
        events = {row[ID]: row[EVENT_ID] for row in rows if row[ID] is not None}
        ids = [each for each in events if each not in known or known[each].event_id != events[each]]
        errors = await self._search(ids, self._read)
        for position, error in errors.items():
            without = await self._unreadable_parts(position, error)
            known[position] = Refusal(events[position], error, without)
        if not errors and not self._refusals.smaller(len(ids)):
            raise refused.error

    async def of_parking(self, refused: ParkRefused) -> None:
        """Find which events can't be set aside, and remember them: they are taken then, to be
        settled. Raises if all of them can."""

        async def park(ids: list[int]) -> None:
            document = json.dumps([documents[each] for each in ids])
            park = self._context.statements.park
            await self._tried(park, listener=self._listener, part=0, document=document)

        documents = {position: each for (position, _), each in refused.documents.items()}
        errors = await self._search(list(documents), park)
        for position, event_id in refused.documents:
            if position in errors:
                self._refusals.known[position] = Refusal(event_id, errors[position])
        if not errors:
            raise refused.error

    async def _search(self, ids: list[int], attempt: Try) -> dict[int, Exception]:
        search, errors = Bisection(ids), dict[int, Exception]()
        while (group := search.group) is not None:
            try:
                came = await attempt(group)
            except Exception as error:
                if not is_refusal(error) and not is_unreachable(error):
                    raise
                await self._answers(group)
                errors[group[0]] = error
                search.failed(2 if is_refusal(error) else LOST_READS)
            else:
                search.passed(came)
        return {each: errors[each] for each in search.culprits}

    async def _read(self, ids: list[int]) -> int | None:
        rows = await self._context.connections.rows(
            self._context.statements.read_again, listener=self._listener, ids=ids
        )
        is_cut = bool(rows) and rows[-1]["so_far"] >= BUDGET
        return ids.index(rows[-1][ID]) + 1 if is_cut else None

    async def _answers(self, ids: list[int]) -> None:
        """Wait until the database answers, about these events too, if they are not to be read."""
        for pause in PAUSE_SECONDS[:-1]:
            await anyio.sleep(pause)
            try:
                await self._bare(ids)
            except Exception as error:
                if not is_unreachable(error):
                    raise
                self._context.connections.drop_idle()
            else:
                return
        await anyio.sleep(PAUSE_SECONDS[-1])
        await self._bare(ids)

    async def _bare(self, ids: list[int]) -> None:
        await self._context.connections.rows(
            self._context.statements.read_again, listener=self._listener, ids=ids, bare=True
        )

    async def _unreadable_parts(self, position: int, error: Exception) -> tuple[Part, ...]:
        """What of that event can't be read. All of it, if reading it ends the connection."""
        if not is_refusal(error):
            return PARTS
        found: list[Part] = []
        for part in PARTS:
            query = Query(reads.read_part(self._context.tables, part))
            try:
                await self._context.connections.rows(query, listener=self._listener, ids=[position])
            except Exception as again:
                if not is_refusal(again):
                    raise
                found.append(part)
        return tuple(found)

    async def _tried(self, query: Query, **values: Any) -> list[Any]:
        """What a statement returns, without what it does."""
        try:
            async with self._context.connections.connection() as connection:
                await _tried(connection, query, values)
        except _RolledBackError as over:
            return over.rows
        raise AssertionError  # pragma: no cover - it is always rolled back
