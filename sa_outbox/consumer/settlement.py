"""What is finished and not written yet, and writing it under one lock.

Invariant: whoever writes the listener's row holds ``lock`` from the moment it computes the new
state until that is committed, so each saved state follows from the one before.
"""

from __future__ import annotations

import json
from time import monotonic
from typing import TYPE_CHECKING

import anyio

from .alerting import alerts
from .auditing import records
from .settle import Settler, Write, plan

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .item import Item
    from .lease import Lease
    from .progress import Progress, Saved
    from .shared import Shared
    from .statements import Settling

AT_LEAST_EVERY = 0.1
"""Seconds that a finished event waits to be settled while slow ones of other keys run."""


class Settlement:
    def __init__(
        self,
        shared: Shared,
        lease: Lease,
        progress: Progress,
        statements: Settling,
        *,
        follow: Callable[[Item], list[Item]],
        after: Callable[[Sequence[Item]], None],
    ) -> None:
        self.lock = anyio.Lock(fast_acquire=True)
        self.settler = Settler(shared.connections, statements, lease)
        self.finished: list[Item] = []
        self._held = lease.retry_position
        """With order="total": the event whose errors are in the listener's row."""
        self.latest_at = 0.0
        """When what is finished is settled at the latest."""
        self.save_at = monotonic() + shared.save_every
        """When a cursor that only passed events of other types is saved."""
        self._shared = shared
        self._statements = statements
        self._lease = lease
        self._progress = progress
        self._follow = follow
        self._after = after

    def add(self, items: Sequence[Item]) -> None:
        if not self.finished:
            self.latest_at = monotonic() + AT_LEAST_EVERY
        self.finished.extend(items)

    async def settle(self) -> None:
        """Write what became of all that is finished, in one transaction."""
        async with self.lock:
            items, self.finished = self.finished, []
            if not items:
                return
            for item in [item for item in items if item.fate == "park"]:
                items += self._follow(item)
            await self._write(items)
        self._after(items)

    async def write_off(self) -> None:
        """Nothing of it is to be handled: write that."""
        async with self.lock:
            await self._write([])

    async def save(self) -> None:
        """Move the cursor over events of other types, and forget holes that are final."""
        async with self.lock:
            self.save_at = monotonic() + self._shared.save_every
            old, new = self._progress.saved, self._progress.after(())
            if (new.position, new.gaps) != (old.position, old.gaps):
                await self._write([])

    async def mark(self, item: Item) -> int:
        """Count that *item* is about to be attempted alone; how many times in a row it was."""
        async with self.lock:
            rows = await self._shared.connections.rows(
                self._statements.mark,
                **self._lease.term,
                old=self._progress.saved.position,
                revision=self._progress.saved.revision,
                suspect=item.position,
            )
        if not rows:
            raise self._lease.lost()
        count: int = rows[0][0]
        return count

    async def forget_crashes(self) -> None:
        """All that was in flight when a holder of the listener died is settled."""
        term, query = self._lease.term, self._statements.forget_crashes
        if query is None:
            return
        await self._shared.connections.rows(
            query,
            name=term["name"],
            part=term["part"],
            token=term["token"],
        )

    def leaves(self, items: Sequence[Item]) -> list[int]:
        """The positions that *items* leave. A delivery with a row has left the cursor before, but
        a range holds it until now."""
        unsettled = self._progress.unsettled
        return [
            item.row[0]
            for item in items
            if item.fate != "hold" and (not item.state or item.row[0] in unsettled)
        ]

    def plan(self, items: Sequence[Item], new: Saved, *, counted: bool = True) -> list[Write]:
        """The statements that settle *items*. Not *counted*: their last attempt is not among
        their attempts yet."""
        old, holding = self._progress.saved, self._is_holding(items)
        writes = plan(self._statements, self._lease, items, old=old, new=new, holding=holding)
        recorded = records(items, self._shared.audit, counted=counted)
        if recorded:
            values = {"listener": self._lease.listener, "document": json.dumps(recorded)}
            # After it is parked: one that is cancelled meanwhile is not retried. And before a row
            # is deleted, from which a replay has its event.
            first = (self._statements.bury, self._statements.park)
            at = sum(write.query in first for write in writes)
            writes.insert(at, Write(self._statements.record, values))
        raised = alerts(self._lease.listener, items, self._shared.alert_depth)
        if raised:
            shared = self._shared.statements
            told = [Write(shared.insert_events, {"document": json.dumps(raised)})]
            writes[:0] = [*told, Write(shared.notify, {})]  # heard when this is committed
        return writes

    def plan_in_session(self, items: Sequence[Item], new: Saved) -> list[Write]:
        """The same in a handler's transaction, before the attempt is counted. From the first lock
        on it may not stand still for longer than a lease: the statement that moves the cursor says
        so itself, and if others come before it, one more does."""
        writes = self.plan(items, new, counted=False)
        if len(writes) > 1:
            duration = self._lease.term["duration"]
            writes.insert(0, Write(self._statements.bound, {"duration": duration}))
        return writes

    def _is_holding(self, items: Sequence[Item]) -> bool:
        """Whether the errors in the listener's row are of an event that is not among *items*, and
        must be kept: also while its next attempt runs."""
        held, progress = self._held, self._progress
        if held is None or any(item.position == held for item in items):
            return False
        return held in progress.unsettled or held > progress.read_to or held in progress.holes

    async def _write(self, items: list[Item]) -> None:
        gone = self.leaves(items)
        new = self._progress.after(gone)
        await self.settler.write(self.plan(items, new), new=new)
        self._progress.settle(gone, new)
        for item in items:
            if item.fate == "hold":
                self._held = item.position
        self.save_at = monotonic() + self._shared.save_every
