"""Which events of a queue come next: those of the log in its order, but for urgent ones and those
of tenants that others are far ahead of."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any

from sa_outbox.event.row import EVENT_ID, ID, MATCHES
from sa_outbox.sql.queue import claims

from ..connection.connections import Query
from ..connection.errors import is_refusal
from ..fault.refusals import set_aside
from ..loop.log_source import FOREVER_SECONDS
from ..position.progress import Progress
from .selection import PASSED_OVER, Selection, leaving, scheduled, within

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sa_outbox.declare.listener import Listener

    from ..connection.connections import Asked, Connection
    from ..fault.refusals import Reads
    from ..loop.reader import Reader
    from ..shared.context import ConsumerContext

FAIR_SHARE = 0.1
"""Fraction of the time that may be spent on finding tenants whose events are far behind others'."""
FAIR_WINDOW = 200_000
"""Ids that such a read examines."""
FILTERED_WINDOW = 20_000
"""Ids that it examines for a queue with a filter, which has their payloads read."""
REFUSED_REST_SECONDS = 10.0
"""Seconds without such reads after the database refused one."""
TURNS = 1000
"""Events for which such a read determines the order: enough for several ranges, so that a tenant
with few events has them all handled before the next such read."""
MAX_GAPS = 1000
"""Ranges of events that others were claimed ahead of: each claim writes them. Above this number the
front of the log goes first, which closes them."""


class TurnsRefused(Exception):
    """A payload could not be compared with the filter. A read in the order of the log finds out
    which one."""


class Urgency:
    def __init__(self, context: ConsumerContext, listener: Listener, reads: Reads) -> None:
        self._context = context
        self._reads = reads
        wanted = context.tables, listener.on
        where = listener.payload_filter
        self._urgent = Query(claims.read_urgent(*wanted, where))
        self._differ = Query(claims.differ(*wanted))
        self._choose_turns = Query(claims.turns(*wanted, where))
        self._window = FAIR_WINDOW if where is None else FILTERED_WINDOW
        self._turns: list[int] = []
        """Events to claim next, for several ranges: of each tenant the first, then the second."""
        self._fair_at = 0.0

    async def read(
        self, asked: Asked, old: Progress, size: int, upper: int, *, urgent: bool
    ) -> Sequence[Any]:
        """Urgent events up to the ceiling *upper*; or, now and then, the first of every tenant.
        Of the urgent ones also those that do not meet the filter. Raises :class:`TurnsRefused`."""
        ranges = zip(old.holes.lows, old.holes.highs, strict=True)
        untaken = ",".join(f"[{low},{high}]" for low, high in ranges)
        first = min(old.holes.lows, default=old.read_to + 1)
        bounds: dict[str, Any]
        bounds = {"first": first, "cursor": old.read_to, "upper": upper}
        bounds["untaken"] = f"{{{untaken}}}"
        rows: list[Any] = []
        if urgent:
            rows = await self._reads.carefully(asked, self._urgent, "urgent", **bounds, limit=size)
        if rows:
            return rows
        began = monotonic()
        if began >= self._fair_at:
            self._turns = await self._new_turns(asked, {**bounds, "window": self._window})
            now = monotonic()
            self._fair_at = now + (now - began) / FAIR_SHARE
        # Some may have been claimed since, by others or by us.
        self._turns = [each for each in self._turns if each > old.read_to or each in old.holes]
        if not self._turns:
            return []
        read = self._context.statements.ranges.read_chosen
        return await self._reads.carefully(asked, read, "turns", ids=self._turns[:size])

    def forget(self) -> None:
        """Whose turn it is: the ids may be those of other events now."""
        self._turns = []

    async def _new_turns(self, asked: Asked, bounds: dict[str, Any]) -> list[int]:
        if not any(row["differ"] for row in await asked.rows(self._differ, **bounds)):
            return []
        try:
            rows = await asked.rows(self._choose_turns, **bounds, limit=TURNS)
        except Exception as error:
            if not is_refusal(error):
                raise
            self._fair_at = monotonic() + REFUSED_REST_SECONDS
            raise TurnsRefused from error
        return [row["id"] for row in rows]


class Chooser:
    """Chooses what is claimed next, for one queue, in one process."""

    def __init__(self, context: ConsumerContext, listener: Listener, reader: Reader) -> None:
        self._context = context
        self._listener = listener
        self._reader = reader
        self._urgency = Urgency(context, listener, reader.reads)
        self.is_behind: bool = False
        """More is waiting than was claimed: then it matters what comes first."""

    def forget(self) -> None:
        """What was chosen for later claims."""
        self._urgency.forget()

    async def choose(self, asked: Asked, row: Any, size: int, *, aside: bool) -> Selection:
        """Up to *size* events, of those that the queue's *row* does not have yet. *aside*: and any
        number of events for later among them."""
        old = Progress(row["position"], row["gaps"], row["revision"])
        # What is set aside takes no handler's time: whole batches, whatever the size of a range.
        room = self._listener.batch_size if aside else size
        snapshot = self._context.horizon.latest
        if self.is_behind and len(old.holes.lows) < MAX_GAPS:
            urgent = bool(row.get("urgent", True))
            rows = await self._urgency.read(asked, old, room, snapshot.ceiling, urgent=urgent)
            if rows:
                chosen = [row for row in rows if row[MATCHES]]
                if aside:
                    chosen, _ = within(chosen, size)
                passed = [row[ID] for row in rows if not row[MATCHES]]
                left = leaving(old.read_to, old.holes, [*(row[ID] for row in chosen), *passed])
                return Selection(old, chosen, *left, snapshot, at_once=bool(passed))
        while True:
            rows, self.is_behind = await self._reader.read(
                asked, old, snapshot, room=room, now=monotonic()
            )
            if rows or not self.is_behind or old.read_to - old.saved.position >= PASSED_OVER:
                chosen, others = within(rows, size) if aside else (rows, ())
                for each in others:
                    old.holes.add(each[ID], each[ID])
                self.is_behind = self.is_behind or bool(others)
                return Selection(old, chosen, old.read_to, old.holes, snapshot)
            # All for others. Not from the row again: it does not change until something is claimed,
            # or many were passed.
            room = self._listener.batch_size

    async def set_aside(self, connection: Connection, selection: Selection) -> None:
        """Park what is for later."""
        if selection.later:
            park, name = self._context.statements.park, self._listener.name
            documents = {
                (row[ID], row[EVENT_ID]): scheduled(row, FOREVER_SECONDS) for row in selection.later
            }
            await set_aside(connection, park, name, documents)
