"""Looking at the horizon: once per wakeup, for all listeners of the process."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING
from weakref import WeakSet

from sa_outbox.observe import HorizonHeld, Looked
from sa_outbox.sql import reading

from .connections import Query
from .raising import tell_of_holder

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from sa_outbox.listener import Listener

    from .connections import Driver
    from .horizon import Look
    from .shared import Shared

HELD_AFTER = 10.0
"""Seconds that the horizon stands still before its holders are named, and between tellings."""
FIRST_FEW = 32
"""Events that are read for all listeners at once: so many as one wakeup usually finds."""
_HIGHEST = 2**63 - 1


class Looker:
    """Asks for the ceiling, then for the holders.

    A connection that was not used before, or a failure, means that the server may be another one:
    the memory of writers starts afresh. The connections are those of the reads that follow, so that
    these meet a server process that is awake.
    """

    def __init__(self, shared: Shared, listeners: Iterable[Listener]) -> None:
        types = tuple(sorted({one for listener in listeners for one in listener.on}))
        self._read_all = Query(reading.read_all(shared.tables, types))
        self._shared = shared
        self._connections = shared.connections
        self._statements = shared.statements
        self._horizon = shared.horizon
        self._observers = shared.observers
        self._known: WeakSet[Driver] = WeakSet()
        self._final = 0
        self._moved_at = monotonic()

    async def first_few(self, above: int) -> list[Any]:
        """The first events above that id, before any look: whoever finds no hole in them needs
        none, and has them a round trip sooner."""
        bounds = {"cursor": above, "upper": _HIGHEST, "limit": FIRST_FEW}
        return await self._connections.rows(self._read_all, **bounds)

    async def look(self) -> Look:
        began = monotonic()
        try:
            async with self._connections.connection() as connection:
                if connection.driver not in self._known:
                    self._horizon.forget()
                    self._known.add(connection.driver)
                ((ceiling, holders),) = await connection.rows(self._statements.look)
        except BaseException:
            self._known.clear()
            raise
        look = self._horizon.look(ceiling, frozenset(holders))
        took = monotonic() - began
        self._observers.tell(Looked(look.ceiling, look.final, look.writers, took))
        await self._name_holders(look)
        return look

    async def _name_holders(self, look: Look) -> None:
        now = monotonic()
        if look.final != self._final or look.final >= look.ceiling:
            self._final, self._moved_at = look.final, now
        elif now - self._moved_at >= HELD_AFTER:
            self._moved_at = now
            for row in await self._connections.rows(self._statements.holders_named):
                if row["pid"] is None or row["seconds"] >= HELD_AFTER:
                    name = row["application_name"]
                    transaction = row["transaction"]
                    held = HorizonHeld(row["pid"], name, row["seconds"], transaction)
                    await tell_of_holder(self._shared, held)
