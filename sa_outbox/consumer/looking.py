"""Looking at the horizon: once per wakeup, for all listeners of the process."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING
from weakref import WeakSet

from sa_outbox.observe import HorizonHeld, Looked

if TYPE_CHECKING:
    from sa_outbox.observe import Observers

    from .connections import Connections, Driver
    from .horizon import Horizon, Look
    from .statements import Statements

HELD_AFTER = 10.0
"""Seconds that the horizon stands still before its holders are named, and between tellings."""


class Looker:
    """Asks for the ceiling, then for the holders.

    A connection that was not used before, or a failure, means that the server may be another one:
    the memory of writers starts afresh. The connections are those of the reads that follow, so that
    these meet a server process that is awake.
    """

    def __init__(
        self,
        connections: Connections,
        statements: Statements,
        horizon: Horizon,
        observers: Observers,
    ) -> None:
        self._connections = connections
        self._statements = statements
        self._horizon = horizon
        self._observers = observers
        self._known: WeakSet[Driver] = WeakSet()
        self._final = 0
        self._moved_at = monotonic()

    async def look(self) -> Look:
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
        self._observers.tell(Looked(look.ceiling, look.final, look.writers))
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
                    self._observers.tell(HorizonHeld(row["pid"], name, row["seconds"], transaction))
