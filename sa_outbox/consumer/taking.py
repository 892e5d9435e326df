"""Taking events of a queue: which ones are next, and the one transaction that makes them ours.

Invariant: an event of the log is in exactly one place: not taken (above the queue's cursor, or in
its gaps), in a range, in a delivery's row, or settled. Whoever moves it from the first to another
holds the lock of the queue's row. So a take may choose ANY events that are visible and not taken;
what it leaves below the new cursor stays in the gaps, and the holes of the log with it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from sa_outbox.sql import queues

from .connections import Query
from .gaps import Gaps
from .intake import FOREVER
from .lease import Lease
from .progress import Progress
from .reading import Reader

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sa_outbox.listener import Listener

    from .connections import Connection
    from .horizon import Look
    from .reading import Asked
    from .shared import Shared

FAIR_SHARE = 0.1
"""Part of the time that may go into looking for tenants whose events are far behind others'."""
FAIR_WINDOW = 200_000
"""Ids at which such a read looks."""
MOST_GAPS = 1000
"""Ranges of events that others were taken ahead of: each take writes them. Above that the front of
the log goes first, which closes them."""
CROWDED = 1.0
"""Seconds for which events are taken under the lock, after two processes wanted the same."""
PASSED_OVER = 10_000
"""Ids of other listeners' events that are passed before the cursor is written for them alone."""


def leaving(position: int, gaps: Gaps, taken: Iterable[int]) -> tuple[int, Gaps]:
    """Cursor and gaps after *taken* were taken and nothing else was. Pure."""
    ids = sorted(taken)
    left, highest = gaps.copy(), max(position, ids[-1])
    left.add(position + 1, highest)
    for each in ids:
        left.remove(each)
    return highest, left


Again: TypeAlias = Literal["again"]


@dataclass(frozen=True, slots=True)
class Taken:
    lease: Lease
    rows: Sequence[Any] | None
    """None: they are still to be read."""


class Choice:
    """What is to be taken, and where the queue stands after it."""

    def __init__(self, old: Progress, rows: Sequence[Any], position: int, gaps: Gaps) -> None:
        self.now = [row for row in rows if not _is_for_later(row)]
        self.later = [row for row in rows if _is_for_later(row)]
        self.passed = position - old.saved.position
        self.moved = {
            "revision": old.saved.revision,
            "position": position,
            "gaps": gaps.dump(),
        }


class Taker:
    """Takes for one queue, for one process."""

    def __init__(self, shared: Shared, listener: Listener, owner: str) -> None:
        self._shared = shared
        self._listener = listener
        self._reader = Reader(listener, shared.tables)
        self._urgent = Query(queues.read_urgent(shared.tables, listener.on))
        self._fairly = Query(queues.read_fairly(shared.tables, listener.on))
        self._duration = shared.settings.lease_duration.total_seconds()
        self._claim = {"name": listener.name, "owner": owner, "duration": self._duration}
        self._read_look = 0
        self._is_behind = False
        """More is waiting than was taken: then it matters who comes first."""
        self._fair_at = 0.0
        self._crowded_until = 0.0

    def has_read(self, look: int) -> bool:
        """Whether everything visible at that look is taken, by whomever."""
        return self._read_look >= look

    def has_new(self) -> bool:
        """Whether the log may hold something that nobody has taken."""
        return self._shared.horizon.latest.number > self._read_look

    async def state(self, held: list[int]) -> Any | None:
        """None: somebody has deleted the queue's row."""
        rows = await self._shared.connections.rows(
            self._shared.statements.ranges.state, name=self._listener.name, held=held
        )
        return rows[0] if rows else None

    async def abandoned(self, held: list[int]) -> Taken | None:
        """A range that another process has left, none of those *held* here: one of them whose
        lease is over would be worked on twice, until the first stint has noticed."""
        began = monotonic()
        rows = await self._shared.connections.rows(
            self._shared.statements.ranges.claim, **self._claim, held=held, limit=1
        )
        return self._leased(rows, began=began)

    async def due(self, size: int, *, least: int, by_age: bool = False) -> Taken | None:
        """Deliveries that are due: retries, scheduled events, those of low priority."""
        began = monotonic()
        rows = await self._shared.connections.rows(
            self._shared.statements.ranges.take_due,
            **self._claim,
            limit=size,
            by_age=by_age,
            least=least,
        )
        if not rows:
            return None
        return Taken(Lease(rows[0], duration=self._duration, began=began), rows)

    async def new(self, state: Any, size: int) -> Taken | Again | None:
        """Events of the log; None if there are none. ``"again"``: another process was quicker, or
        all of them are for later.

        Alone, without a lock: the revision tells whether somebody came in between, and nothing is
        taken then. Whoever met another process waits for the lock instead: a read in vain costs
        more than a wait.
        """
        look = self._shared.horizon.latest
        connections = self._shared.connections
        if monotonic() >= self._crowded_until:
            choice = await self._choose(connections, state, size)
            if not choice.later:
                return self._took(look, choice, await self._take(connections, choice))
        async with connections.connection() as connection, connection.transaction():
            lock = self._shared.statements.ranges.lock
            name, patience = self._listener.name, f"{self._duration * 1000:.0f}ms"
            rows = await connection.rows(lock, name=name, patience=patience)
            if not rows or rows[0]["paused"]:
                return None
            choice = await self._choose(connection, rows[0], size)
            await self._set_aside(connection, choice)
            taken = await self._take(connection, choice)
        return self._took(look, choice, taken)

    def _took(self, look: Look, choice: Choice, taken: Taken | None) -> Taken | Again | None:
        if choice.now and taken is None:
            self._crowded_until = monotonic() + CROWDED
            return "again"
        if not self._is_behind:
            self._read_look = max(self._read_look, look.number)
        return "again" if choice.later and taken is None else taken

    async def _take(self, asked: Asked, choice: Choice) -> Taken | None:
        statements, began = self._shared.statements.ranges, monotonic()
        moved = {**self._claim, **choice.moved}
        if choice.now:
            ids = sorted(row[0] for row in choice.now)
            taken = Gaps((each, each) for each in ids).dump()
            rows = await asked.rows(statements.take, **moved, upper=ids[-1], taken=taken)
            return self._leased(rows, began=began, rows=choice.now)
        if choice.later or choice.passed >= PASSED_OVER:
            await asked.rows(statements.pass_over, **moved)
        return None

    async def _set_aside(self, connection: Connection, choice: Choice) -> None:
        if choice.later:
            document = json.dumps([_scheduled(row) for row in choice.later])
            park = self._shared.statements.park
            await connection.rows(park, listener=self._listener.name, part=0, document=document)

    async def _choose(self, asked: Asked, row: Any, size: int) -> Choice:
        old = Progress(row["position"], Gaps.parse(row["gaps"]), row["revision"])
        if self._is_behind and len(old.holes) < MOST_GAPS:
            urgent = bool(row.get("urgent", True))
            rows = await self._out_of_turn(asked, old, size, urgent=urgent)
            if rows:
                left = leaving(old.read_to, old.holes, [row[0] for row in rows])
                return Choice(old, rows, *left)
        look = self._shared.horizon.latest
        while True:
            rows, self._is_behind = await self._reader.read(
                asked, old, look, room=size, now=monotonic()
            )
            if rows or not self._is_behind:
                return Choice(old, rows, old.read_to, old.holes)
            # All of other types. Not from the row again: it stays where it was until something is
            # taken, or much was passed.
            size = self._listener.batch_size

    async def _out_of_turn(
        self, asked: Asked, old: Progress, size: int, *, urgent: bool
    ) -> Sequence[Any]:
        """Urgent events; or, now and then, the first ones of every tenant."""
        ranges = zip(old.holes.lows, old.holes.highs, strict=True)
        untaken = ",".join(f"[{low},{high}]" for low, high in ranges)
        bounds = {"cursor": old.read_to, "untaken": f"{{{untaken}}}"}
        rows: list[Any] = []
        if urgent:
            rows = await asked.rows(self._urgent, **bounds, limit=size)
        if rows or monotonic() < self._fair_at:
            return rows
        first, began = min(old.holes.lows, default=old.read_to + 1), monotonic()
        rows = await asked.rows(self._fairly, **bounds, first=first, window=FAIR_WINDOW, limit=size)
        now = monotonic()
        self._fair_at = now + (now - began) / FAIR_SHARE
        return rows if len({row["tenant"] for row in rows}) > 1 else []

    def _leased(
        self, leases: Sequence[Any], *, began: float, rows: Sequence[Any] | None = None
    ) -> Taken | None:
        if not leases:
            return None
        return Taken(Lease(leases[0], duration=self._duration, began=began), rows)


def _is_for_later(row: Any) -> bool:
    """Not now, or not before all others: such a delivery gets a row."""
    return bool(row["priority"] < 0 or (row["wait"] is not None and row["wait"] > 0))


def _scheduled(row: Any) -> dict[str, Any]:
    delay = min(max(row["wait"] or 0.0, 0.0), FOREVER)
    return {"position": row[0], "state": "scheduled", "delay": delay, "attempts": 0}
