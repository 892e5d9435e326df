"""Change the number of a listener's partitions while its consumers run.

Nothing is lost and nothing is delivered twice, whoever crashes when: a single transaction decides
everything. It locks the rows of all partitions, finds none of them under a lease, and replaces them
by new ones (``position/merge.py`` computes their initial state) with a higher token. The steps
before only make that moment come soon: a barrier, which cursors do not read past and at which they
release their leases. A barrier expires by itself, so an operation that was killed leaves nothing
behind.
"""

from __future__ import annotations

from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING, Any

import anyio

from sa_outbox.declare.listener import MAX_PARTITIONS
from sa_outbox.errors import ConfigError, NotRepartitioned
from sa_outbox.policy.checks import known_instead
from sa_outbox.policy.order import DIVISIBLE, either
from sa_outbox.settings import ConsumerSettings
from sa_outbox.sql.log import listener_partitions
from sa_outbox.sql.server import notify

from .connection.connections import Connections, Query, best_effort
from .connection.engines import engines
from .position.gaps import Gaps
from .position.merge import CursorState, Merge

if TYPE_CHECKING:
    from sqlalchemy import URL, Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

    from sa_outbox.outbox import Outbox

    from .connection.connections import Connection

POLL_SECONDS = 0.1
MAX_EVENTS = 5_000
"""Maximum number of log events examined in the deciding transaction."""
MAX_RANGES = 500
"""Number of gap ranges above which we wait for lagging partitions: each save writes them."""
AT_ONCE = 0
"""A barrier that every cursor has already reached."""
CLOSE_SECONDS = 1.0


async def repartition(
    outbox: Outbox,
    database: str | URL | Engine | AsyncEngine,
    listener: str,
    count: int,
    *,
    within: timedelta = timedelta(minutes=5),
) -> int:
    """Divide *listener* into *count* partitions; return the previous number.

    Consumers may run, and may crash. Each finishes its events in flight, releases its leases and
    continues under the new division; events of one key stay in order, none is lost, and no settled
    event is delivered again. Partitions that are far behind the others catch up first. Raises
    :class:`NotRepartitioned` when a handler, or a lagging partition, takes longer than *within*;
    then everything continues as before.
    """
    if type(count) is not int or not 1 <= count <= MAX_PARTITIONS:
        raise ConfigError(f"a listener has from 1 to {MAX_PARTITIONS} partitions, not {count!r}")
    mode = outbox.listeners[listener].order_mode if listener in outbox.listeners else None
    if mode is not None and not mode.is_divisible and count != 1:
        raise ConfigError(f"listener {listener!r} has order={mode.name!r}, and so one partition")
    made = engines(database, None, ())
    connections = Connections.of(made.connect, ConsumerSettings(), most=1)
    try:
        return await _Repartition(outbox, connections, listener, count).run(within)
    finally:
        with anyio.CancelScope(shield=True):
            await connections.close(CLOSE_SECONDS)
        await best_effort(made.dispose(), CLOSE_SECONDS)


class _Repartition:
    def __init__(self, outbox: Outbox, connections: Connections, name: str, count: int) -> None:
        tables = outbox.tables
        self._is_declared = name in outbox.listeners
        self._connections = connections
        self._name = name
        self._count = count
        self._stands = Query(listener_partitions.stands(tables, lock=True))
        self._names = Query(listener_partitions.listener_names(tables))
        self._visible = Query(listener_partitions.visible(tables))
        self._set_barrier = Query(listener_partitions.set_barrier(tables))
        self._lift_barrier = Query(listener_partitions.lift_barrier(tables))
        self._remove = Query(listener_partitions.remove_partitions(tables))
        self._reset = Query(listener_partitions.reset_partitions(tables))
        self._add = Query(listener_partitions.add_partitions(tables))
        self._move = Query(listener_partitions.move_deliveries(tables))
        self._emit = Query(notify.notify(outbox.settings.names.notify_channel, notify.RELEASED))
        self._barrier = -1
        self._set_at = 0.0
        self._waits_for = ""

    async def run(self, within: timedelta) -> int:
        before = None
        try:
            with anyio.move_on_after(within.total_seconds()):
                while (before := await self._attempt()) is None:
                    await self._connections.rows(self._emit)
                    await anyio.sleep(POLL_SECONDS)
        finally:
            await best_effort(self._end(lift=before is None), CLOSE_SECONDS)
        if before is None:
            raise NotRepartitioned(
                f"listener {self._name!r} was not divided into {self._count} partitions within "
                f"{within}: {self._waits_for}"
            )
        return before

    async def _attempt(self) -> int | None:
        """The previous number of partitions; None: not yet."""
        async with self._connections.connection() as connection, connection.transaction():
            rows = await connection.rows(self._stands, name=self._name)
            if not rows:
                known = [row["name"] for row in await connection.rows(self._names)]
                near = known_instead(self._name, known)
                raise ConfigError(f"the database knows no listener {self._name!r}{near}")
            before: int = rows[0]["count"]
            if before == self._count:
                await connection.rows(self._lift_barrier, name=self._name)
                return before
            if before == 1 and not self._is_declared:
                raise ConfigError(
                    f"this program declares no listener {self._name!r}, so nobody knows its order, "
                    f"and only order={either(DIVISIBLE)} can be divided: ask with the outbox that "
                    "declares it (sa-outbox repartition --app MODULE:ATTRIBUTE)"
                )
            gaps = await self._gaps(connection, rows)
            top: int = max(row["position"] for row in rows)
            held = [row["part"] for row in rows if row["held"]]
            if gaps is not None and not held:
                await self._replace(connection, rows, top, gaps)
                return before
            if gaps is None:
                self._waits_for = "its partitions are far apart; is a consumer running?"
                await self._hold_up(connection, top)
            else:
                self._waits_for = f"partitions {held} are held; is a handler slow?"
                await self._hold_up(connection, AT_ONCE)
            return None

    async def _gaps(self, connection: Connection, rows: list[Any]) -> Gaps | None:
        """The gaps that new partitions would have now; None: too many."""
        merging = Merge([CursorState(row["position"], Gaps.parse(row["gaps"])) for row in rows])
        visible = []
        if merging.doubtful:
            visible = await connection.rows(
                self._visible,
                lows=merging.doubtful.lows,
                highs=merging.doubtful.highs,
                count=len(rows),
                limit=MAX_EVENTS + 1,
            )
        gaps = merging.gaps((row["id"], row["part"]) for row in visible)
        apart = len({row["position"] for row in rows}) > 1
        is_too_much = len(visible) > MAX_EVENTS or (apart and len(gaps) > MAX_RANGES)
        return None if is_too_much else gaps

    async def _hold_up(self, connection: Connection, barrier: int) -> None:
        now = monotonic()
        if barrier != self._barrier or now - self._set_at > listener_partitions.BARRIER_SECONDS / 3:
            await connection.rows(self._set_barrier, name=self._name, barrier=barrier)
            self._barrier, self._set_at = barrier, now

    async def _replace(
        self, connection: Connection, rows: list[Any], position: int, gaps: Gaps
    ) -> None:
        name, count = self._name, self._count
        await connection.rows(self._remove, name=name, count=count)
        await connection.rows(
            self._reset,
            name=name,
            count=count,
            position=position,
            gaps=gaps.dump(),
            token=1 + max(row["token"] for row in rows),
            crashes=max(row["crashes"] for row in rows),
        )
        await connection.rows(self._add, name=name, first=len(rows))
        await connection.rows(self._move, name=name, count=count)

    async def _end(self, *, lift: bool) -> None:
        if lift:
            await self._connections.rows(self._lift_barrier, name=self._name)
        await self._connections.rows(self._emit)
