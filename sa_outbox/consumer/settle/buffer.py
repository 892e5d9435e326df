"""What is finished and not written yet, and writing it under one lock.

Invariant: whoever writes the listener's row holds ``lock`` from the moment it computes the new
state until that is committed, so each saved state follows from the one before.
"""

from __future__ import annotations

import json
from itertools import chain
from time import monotonic
from typing import TYPE_CHECKING, Any

import anyio

from sa_outbox.event.row import ID

from ..connection.errors import is_refusal
from ..fault.refusals import PARTS, condemn, is_unattempted
from .alerts import alerts
from .audit import records
from .writer import SettlementWriter
from .writes import Write, plan

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..connection.connections import Query
    from ..connection.statements import Settling
    from ..handler.delivery import InFlight
    from ..lease.lease import Lease
    from ..position.progress import Progress, Saved
    from ..shared.context import ConsumerContext

SKIP_SAVE_SECONDS = 3.0
"""Seconds after which a cursor that only passed events of other types is saved: so often at most,
however many come by."""
MAX_WAIT_SECONDS = 0.1
"""Seconds that a finished event waits to be settled while slow ones of other keys run."""


class SettlementBuffer:
    def __init__(
        self,
        context: ConsumerContext,
        lease: Lease,
        progress: Progress,
        statements: Settling,
        *,
        follow: Callable[[InFlight], list[InFlight]],
        unfollow: Callable[[list[InFlight]], None],
        after: Callable[[Sequence[InFlight]], None],
    ) -> None:
        self.lock = anyio.Lock(fast_acquire=True)
        self.settler = SettlementWriter(context.connections, context.continuity, statements, lease)
        self.finished: list[InFlight] = []
        self._held = lease.retry_position
        """With order="total": the event whose errors are in the listener's row."""
        self.noted = set(lease.suspects)
        """Positions that are among the suspects in the leased row, or may be."""
        self._unmarked: set[int] = set()
        """Of these, what was noted here, and not attempted alone."""
        self.latest_at = 0.0
        """When what is finished is settled at the latest."""
        self.save_at: float | None = None
        """When a cursor that only passed events of other types is saved; None: it has not."""
        self._context = context
        self._statements = statements
        self._lease = lease
        self._progress = progress
        self._follow = follow
        self._unfollow = unfollow
        self._after = after

    def add(self, items: Sequence[InFlight]) -> None:
        if not self.finished:
            self.latest_at = monotonic() + MAX_WAIT_SECONDS
        self.finished.extend(items)

    async def settle(self) -> None:
        """Write what became of all that is finished, in one transaction."""
        async with self.lock:
            items, self.finished = self.finished, []
            if not items:
                return
            settled = await self._write_all(items)
        self._after(settled)

    async def _write_all(self, items: list[InFlight]) -> list[InFlight]:
        """Write the outcomes of *items*, in one transaction; and of what follows behind them.

        If the database refuses that, it refuses one of them: each half is written for itself, and
        the one that is left becomes a dead letter. Returns all that were written.
        """
        followed = {item: self._follow(item) for item in items if item.outcome == "park"}
        written = [*items, *chain.from_iterable(followed.values())]
        try:
            await self._write(written)
        except Exception as error:
            if not is_refusal(error):
                raise
            for those in followed.values():
                self._unfollow(those)
            if len(items) == 1:
                await self._give_up(items[0], error)
                return items
            middle = len(items) // 2
            first = await self._write_all(items[:middle])
            return first + await self._write_all(items[middle:])
        return written

    async def _give_up(self, item: InFlight, error: Exception) -> None:
        """What became of *item* can't be written: then that. At last with as little as possible.
        If even this is refused, it is not for the event."""
        if item.outcome == "hold":  # all of it is in the listener's row
            raise error
        item.aside = item.aside or item.outcome in ("behind", "withdraw") or is_unattempted(item)
        condemn(item, error, self._context.redact, ())
        try:
            await self._write([item])
        except Exception as again:
            if not is_refusal(again):
                raise
            condemn(item, again, self._context.redact, PARTS)
            await self._write([item], barely=True)

    async def write_off(self) -> None:
        """Nothing of it is to be handled: write that."""
        async with self.lock:
            await self._write([])

    async def save_in_time(self) -> None:
        """``save`` some time after there is something to save: not for each event that comes by."""
        if not self._only_passed():
            self.save_at = None
        elif self.save_at is None:
            self.save_at = monotonic() + SKIP_SAVE_SECONDS
        elif monotonic() >= self.save_at:
            await self.save()

    async def save(self) -> None:
        """Move the cursor over events of other types, and forget holes that are final."""
        async with self.lock:
            self.save_at = None
            if self._only_passed():
                await self._write([])

    def _only_passed(self) -> bool:
        old, new = self._progress.saved, self._progress.after(())
        return (new.position, new.gaps) != (old.position, old.gaps)

    async def note(self, items: Sequence[InFlight]) -> None:
        """Write down that *items* are about to be attempted, while others are."""
        positions = [item.position for item in items if item.position not in self.noted]
        if positions:
            self._unmarked.update(positions)
            await self._suspect(self._statements.suspects.note, positions, positions=positions)

    async def mark(self, item: InFlight) -> int:
        """Count that *item* is about to be attempted alone; in how many terms it was, and came to
        no end."""
        self._unmarked.discard(item.position)
        mark, position = self._statements.suspects.mark, item.position
        row = await self._suspect(mark, [position], suspect=position)
        count: int = row["marks"]
        return count

    async def _suspect(self, query: Query, whom: list[int], **values: object) -> Any:
        async with self.lock:
            # Before: if the answer is lost, it may be written.
            self.noted.update(whom)
            saved = self._progress.saved
            stand = {"old": saved.position, "revision": saved.revision}
            rows = await self._context.connections.rows(
                query, **self._lease.term, **stand, **values
            )
        if not rows:
            raise self._lease.lost()
        return rows[0]

    async def take_notes_back(self) -> None:
        """What was noted here and is in nobody's hands any more: no suspects, if this ends well."""
        noted = sorted(self._unmarked & self.noted)
        if noted:
            absolve = self._statements.suspects.absolve
            await self._context.connections.rows(absolve, **self._lease.term, positions=noted)
            self.noted.difference_update(noted)

    async def forget_crashes(self) -> None:
        """All that was in flight when a holder of the listener died is settled."""
        term, query = self._lease.term, self._statements.suspects.forget
        if query is None:
            return
        await self._context.connections.rows(
            query,
            name=term["name"],
            part=term["part"],
            token=term["token"],
        )

    def leaves(self, items: Sequence[InFlight]) -> list[int]:
        """The positions that *items* leave. A delivery with a row has left the cursor before, but
        a range holds it until now."""
        unsettled = self._progress.unsettled
        return [
            item.row[ID]
            for item in items
            if item.outcome != "hold" and (not item.state or item.row[ID] in unsettled)
        ]

    def plan(self, items: Sequence[InFlight], new: Saved, *, counted: bool = True) -> list[Write]:
        """The statements that settle *items*. Not *counted*: their last attempt is not among
        their attempts yet."""
        writes = self._plan_barely(items, new)
        audit = self._context.audit
        if audit != "off" and (recorded := records(items, audit, counted=counted)):
            values = {"listener": self._lease.listener, "document": json.dumps(recorded)}
            # After it is parked: one that is cancelled meanwhile is not retried. And before a row
            # is deleted, from which a replay has its event.
            first = (self._statements.bury, self._statements.park)
            at = sum(write.query in first for write in writes)
            writes.insert(at, Write(self._statements.record, values))
        absolved = self._absolved(items) if self.noted else ()
        if absolved:
            term = {**self._lease.term, "positions": absolved}
            writes.insert(-1, Write(self._statements.suspects.absolve, term))
        dead = [item for item in items if item.outcome == "dead"]
        if dead and (raised := alerts(self._lease.listener, dead, self._context.alert_depth)):
            statements = self._context.statements
            inserts = [Write(statements.insert_events, {"document": json.dumps(raised)})]
            writes[:0] = [*inserts, Write(statements.notify, {})]  # heard when this is committed
        return writes

    def _plan_barely(self, items: Sequence[InFlight], new: Saved) -> list[Write]:
        old, holding = self._progress.saved, self._is_holding(items)
        return plan(self._statements, self._lease, items, old=old, new=new, holding=holding)

    def plan_in_session(self, items: Sequence[InFlight], new: Saved) -> list[Write]:
        """Which statements settle *items* in a handler's transaction, before the attempt is
        counted. From the first lock on it may not idle for longer than a lease: the statement that
        moves the cursor sets that limit itself, and if others come before it, one more statement
        does."""
        writes = self.plan(items, new, counted=False)
        if len(writes) > 1:
            duration = self._lease.term["duration"]
            writes.insert(0, Write(self._statements.bound, {"duration": duration}))
        return writes

    def absolve(self, items: Sequence[InFlight]) -> None:
        """The outcomes of *items* are committed: they are no suspects any more."""
        self.noted.difference_update(self._absolved(items))

    def _absolved(self, items: Sequence[InFlight]) -> list[int]:
        noted = self.noted
        return [item.position for item in items if item.position in noted and item.was_attempted]

    def _is_holding(self, items: Sequence[InFlight]) -> bool:
        """Whether the errors in the listener's row are of an event that is not among *items*, and
        must be kept: also while its next attempt runs."""
        held, progress = self._held, self._progress
        if held is None or any(item.position == held for item in items):
            return False
        return held in progress.unsettled or held > progress.read_to or held in progress.holes

    async def _write(self, items: list[InFlight], *, barely: bool = False) -> None:
        """*barely*: without audit and alerts."""
        gone = self.leaves(items)
        new = self._progress.after(gone)
        writes = self._plan_barely(items, new) if barely else self.plan(items, new)
        await self.settler.write(writes, new=new)
        self._progress.settle(gone, new)
        for item in items:
            if item.outcome == "hold":
                self._held = item.position
        self.save_at = None
