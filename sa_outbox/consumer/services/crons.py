"""Recurring events: adding the event of each tick, in whichever process comes first.

Every consumer sleeps until the next tick of any cron, and all wake at once. The row of a cron is
locked, and shows which tick had its event last: whoever comes second finds nothing to do. The
events and the new ``last_tick`` are one transaction, so a process that dies midway leaves neither.
"""

from __future__ import annotations

from random import uniform
from time import monotonic
from typing import TYPE_CHECKING

import anyio
from anyio import TASK_STATUS_IGNORED
from anyio.lowlevel import checkpoint_if_cancelled

from sa_outbox.errors import NotWritten
from sa_outbox.observe import Place, Ticked

from ..connection.errors import is_database_error, is_unreachable
from ..shared.outage import Outage
from ..shared.own_events import add_events
from ..shared.sync import AutoResetEvent

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from anyio.abc import TaskStatus

    from sa_outbox.declare.cron import Tick
    from sa_outbox.declare.recurring import Recurring
    from sa_outbox.outbox import Outbox

    from ..connection.connections import Connection
    from ..shared.context import ConsumerContext

MAX_SLEEP_SECONDS = 3600.0
"""A local clock may run at another speed than the database's, or stand still while the machine
sleeps, and the database's may be set: it is read again from time to time."""
MIN_SLEEP_SECONDS = 0.001
IDLE_TIMEOUT = "30s"
"""How long a process that stopped in the middle keeps the others waiting."""
PORTION = 8_388_608
"""Approximate maximum of characters of events in one statement."""


class CronService:
    """Adds the events of the crons of one outbox."""

    def __init__(
        self, context: ConsumerContext, crons: Iterable[Recurring], *, notifies: bool
    ) -> None:
        self._context = context
        self._crons = {each.name: each for each in crons}
        self._notifies = notifies
        self._outage = Outage(Place("crons"), context.observers.emit)
        self.bell: AutoResetEvent = AutoResetEvent()
        """Rung when the clock was moved."""

    @classmethod
    def of(cls, context: ConsumerContext, outbox: Outbox) -> CronService | None:
        """None for an outbox that has no crons: then there is nothing to run."""
        if not len(outbox.crons):
            return None
        return cls(context, outbox.crons, notifies=outbox.settings.notifies)

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """It has started when what was due at the start has its events, or could not have them."""
        pause = await self._tick_or_wait()
        task_status.started()
        while True:
            await self.bell.wait(pause)
            pause = await self._tick_or_wait()

    async def _tick_or_wait(self) -> float:
        """Do what is due; return for how many seconds there is nothing to do."""
        try:
            pause, held_up_by = await self._tick()
        except Exception as error:
            if not is_database_error(error):
                raise
            return self._outage.goes_on(error)
        if held_up_by is not None:
            return min(pause, self._outage.goes_on(held_up_by))
        if self._outage.is_away:
            self._outage.ends()
        return pause

    async def _tick(self) -> tuple[float, Exception | None]:
        """Returns the seconds until the next tick, and what kept a cron from its events. Such a one
        waits as in an outage: its ticks are not among the next."""
        connections, statements = self._context.connections, self._context.statements
        rows = await connections.rows(statements.crons_standing, names=list(self._crons))
        answered, now = monotonic(), rows[0]["now"]
        last_ticks = {row["name"]: row["last_tick"] for row in rows}
        unknown = [name for name, last_tick in last_ticks.items() if last_tick is None]
        if unknown:
            await connections.rows(statements.crons_register, names=unknown)
        ours = ((self._crons[name], last_tick) for name, last_tick in last_ticks.items())
        held_up = await self._add_due(
            [each for each, last_tick in ours if last_tick and each.due(last_tick, now)]
        )
        others = {name: at for name, at in last_ticks.items() if name not in held_up}
        pause = self._until_next(others, now) - (monotonic() - answered)
        return pause, next(iter(held_up.values()), None)

    def _until_next(self, last_ticks: dict[str, datetime | None], now: datetime) -> float:
        pause = MAX_SLEEP_SECONDS * uniform(0.9, 1.0)  # noqa: S311 - not all processes at once
        for name, last_tick in last_ticks.items():
            # After last_tick, too: the clock may have been set back.
            upcoming = self._crons[name].cron.next_after(max(now, last_tick or now))
            if upcoming is not None:
                pause = min(pause, (upcoming - now).total_seconds())
        return max(pause, MIN_SLEEP_SECONDS)

    async def _add_due(self, due: Iterable[Recurring]) -> dict[str, Exception]:
        """Returns which crons have no events yet, and why: the others have had their turn."""
        added, held_up = False, dict[str, Exception]()
        for recurring in due:
            await checkpoint_if_cancelled()  # several may time out, one after the other
            try:
                added = await self._add_events(recurring) or added
            except Exception as error:
                if not _concerns_one(error):
                    raise
                held_up[recurring.name] = error
        if added and self._notifies:
            await self._context.connections.rows(self._context.statements.notify)
        return held_up

    async def _add_events(self, recurring: Recurring) -> bool:
        """Whether there were ticks for which no other process was faster."""
        settings, statements = self._context.settings, self._context.statements
        # Shielded: if cancelled midway, asyncpg would leave an unretrieved error in the loop.
        with anyio.fail_after(settings.probe_timeout.total_seconds(), shield=True) as scope:
            connections = self._context.connections
            async with connections.connection() as connection, connection.transaction():
                rows = await connection.rows(
                    statements.crons_claim, name=recurring.name, patience=IDLE_TIMEOUT
                )
                scope.deadline += settings.statement_timeout.total_seconds()
                ticks = recurring.due(rows[0]["last_tick"], rows[0]["now"]) if rows else []
                if ticks:
                    await self._write(connection, recurring, ticks)
        for tick in ticks:
            self._context.observers.emit(Ticked(recurring.name, tick.at, tick.missed))
        return bool(ticks)

    async def _write(self, connection: Connection, recurring: Recurring, ticks: list[Tick]) -> None:
        statements = self._context.statements
        for rows in _portions(recurring, ticks):
            document = f"[{','.join(rows)}]"
            await add_events(self._context, connection, document, expected=len(rows))
            if self._context.audit == "all":
                await connection.rows(statements.record_added, document=document)
        await connection.rows(statements.crons_advance, name=recurring.name, tick=ticks[-1].at)


def _concerns_one(error: Exception) -> bool:
    """Whether the database may well take the events of other crons. A timeout can be a lock on the
    row of this one, or a slow trigger."""
    if isinstance(error, (NotWritten, TimeoutError)):
        return True
    return is_database_error(error) and not is_unreachable(error)


def _portions(recurring: Recurring, ticks: list[Tick]) -> Iterator[list[str]]:
    rows: list[str] = []
    size = 0
    for tick in ticks:
        rows.append(recurring.row(tick))
        size += len(rows[-1])
        if size >= PORTION:
            yield rows
            rows, size = [], 0
    if rows:
        yield rows
