"""Reading the horizon: once per wakeup, for all listeners of the process."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Protocol
from weakref import WeakSet

from sa_outbox.event.row import EVENT_ID, ID
from sa_outbox.event.type_patterns import wanted
from sa_outbox.observe import CommitsLost, HorizonHeld, HorizonRead, IdsNotDrawn
from sa_outbox.sql.log import reads
from sa_outbox.sql.log.large_events import BUDGET

from ..connection.connections import Query, Steady
from ..connection.errors import is_refusal
from ..lease.continuity import Newest, is_gone
from .alerts import report_holder

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any
    from uuid import UUID

    from sa_outbox.declare.listener import Listener

    from ..connection.connections import Driver
    from ..position.horizon import HorizonSnapshot
    from ..shared.context import ConsumerContext

HELD_AFTER_SECONDS = 10.0
"""Seconds that the horizon has not moved before its holders are reported, and between reports."""
FIRST_FEW = 32
"""Events that are read for all listeners at once: about as many as a wakeup usually finds."""
MAX_COUNTED = 1000
"""Ids that nobody drew are counted up to here."""
_EACH = BUDGET // FIRST_FEW


class Remembered(Protocol):
    """What this process remembers of the database."""

    async def compare(self) -> None:
        """Compare each row under a lease with what was saved there, and drop what differs."""
        ...

    def start_over(self) -> None:
        """Drop whatever has read events that do not exist anymore."""
        ...


class HorizonReader:
    """Asks for the ceiling, then for the holders.

    A connection that was not used before, or a failure, means that the server may be another one:
    the memory of writers is cleared. After a connection has ended, everything that is remembered
    is compared with the database before a snapshot is used: ``lease/continuity.py``. The
    connections are those of the reads that follow, so that these meet a server process that is
    awake.
    """

    def __init__(
        self, context: ConsumerContext, listeners: Iterable[Listener], memory: Remembered
    ) -> None:
        listeners = tuple(listeners)
        types = tuple(sorted({one for listener in listeners for one in wanted(listener.on)}))
        known = {each.payload_filter for each in listeners}
        where = sorted(each for each in known if each is not None)
        self._first_few = Query(reads.first_few(context.tables, types, where))
        self._context = context
        self._connections = context.connections
        self._statements = context.statements
        self._horizon = context.horizon
        self._observers = context.observers
        self._continuity = context.continuity
        self._memory = memory
        self._known: WeakSet[Driver] = WeakSet()
        self._newest: Newest | None = None
        self._final = 0
        self._moved_at = monotonic()
        self._undrawn_emitted_at = -HELD_AFTER_SECONDS
        self._passes = False
        """The first few could not be read: each loop reads for itself."""

    async def first_few(self, above: int) -> list[Any]:
        """The first events above that id, before the horizon is read: a loop that finds no hole in
        them needs no snapshot, and has them a round trip sooner."""
        if self._passes:
            self._passes = False
            return []
        bounds = {"cursor": above, "limit": FIRST_FEW, "each": _EACH}
        steady = Steady(self._connections, self._continuity)
        try:
            rows = await steady.rows(self._first_few, **bounds)
        except Exception as error:
            self._passes = True
            if is_refusal(error):
                return []
            raise
        if rows:
            self._has_read(rows[-1][ID], rows[-1][EVENT_ID])
        return rows

    async def read(self) -> HorizonSnapshot:
        began = monotonic()
        try:
            era, row = self._continuity.era, await self._ask()
            while not await self._is_confirmed(row, era):
                era, row = self._continuity.era, await self._ask()
        except BaseException:
            self._known.clear()
            raise
        snapshot = self._horizon.observe(row["ceiling"], frozenset(row["holders"]))
        if row["newest"] is not None:
            self._has_read(row["ceiling"], row["newest"])
        took = monotonic() - began
        highest = self._horizon.highest
        self._observers.emit(
            HorizonRead(snapshot.ceiling, snapshot.final, snapshot.writers, took, highest)
        )
        await self._name_holders(snapshot)
        if row["undrawn"] is not None:
            await self._emit_undrawn()
        return snapshot

    def _has_read(self, position: int, event_id: UUID) -> None:
        """That event is in the log."""
        if self._newest is None or position > self._newest.position:
            self._newest = Newest(position, event_id)

    async def _emit_undrawn(self) -> None:
        """They are ignored until the sequence has reached them, or somebody has deleted them."""
        now = monotonic()
        if now - self._undrawn_emitted_at >= HELD_AFTER_SECONDS:
            self._undrawn_emitted_at = now
            (row,) = await self._connections.rows(self._statements.undrawn, most=MAX_COUNTED)
            if row["count"]:
                self._observers.emit(IdsNotDrawn(row["first"], row["last"], row["count"]))

    async def _ask(self) -> Any:
        position = 0 if self._newest is None else self._newest.position
        async with self._connections.connection() as connection:
            if connection.driver not in self._known:
                self._horizon.forget()
                self._known.add(connection.driver)
            (row,) = await connection.rows(self._statements.read_horizon, position=position)
        return row

    async def _is_confirmed(self, row: Any, era: int) -> bool:
        """Whether what is remembered belongs to the history that *row* was read from, in this
        *era*."""
        continuity, newest = self._continuity, self._newest
        if continuity.era != era:
            return False
        sure = continuity.is_sure
        if newest is not None and row["known"] != newest.event_id:
            drawn = None
            if row["known"] is None:
                drawn = await self._connections.value(self._statements.drawn)
            self._newest = None
            if is_gone(newest, row["known"], drawn=drawn, sure=sure):
                self._observers.emit(CommitsLost(newest.position))
                self._memory.start_over()
                continuity.doubt()
                return False
        if sure:
            return continuity.era == era
        await self._memory.compare()
        return continuity.confirm(era)

    async def _name_holders(self, snapshot: HorizonSnapshot) -> None:
        now = monotonic()
        if snapshot.final != self._final or snapshot.final >= snapshot.ceiling:
            self._final, self._moved_at = snapshot.final, now
        elif now - self._moved_at >= HELD_AFTER_SECONDS:
            self._moved_at = now
            for row in await self._connections.rows(self._statements.holders_named):
                if row["pid"] is None or row["seconds"] >= HELD_AFTER_SECONDS:
                    name = row["application_name"]
                    transaction = row["transaction"]
                    held = HorizonHeld(row["pid"], name, row["seconds"], transaction)
                    await report_holder(self._context, held)
