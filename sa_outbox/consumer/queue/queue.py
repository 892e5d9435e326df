"""A queue: one listener whose events any number of processes share.

``run`` is the story. As long as there is room, the next range is claimed: one that another process
has left, deliveries that are due, or new events; a loop works through each. Ranges are as large as
one process can handle in about a second, so that a second process finds something to do.

Invariant: with ``concurrency=1``, one process handles new events in the order of the log. The loop
of the range claimed first asks for the only slot first and keeps it until nothing of its range
waits, and the semaphore is fair. Several slots are passed around instead: with a session, the
events of one range are committed one after the other, and ranges side by side. What comes out of
order: urgent events, tenants in turn, retries, events that were committed late, and ranges that
another process or an outage has left.
"""

from __future__ import annotations

from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any

import anyio
from anyio import TASK_STATUS_IGNORED

from sa_outbox.observe import Place, RangeTaken
from sa_outbox.sql.queue import ranges

from ..connection.connections import Query, best_effort
from ..connection.errors import is_database_error
from ..fault.refusals import ParkRefused, ReadRefused
from ..lanes.limits import ConcurrencyLimits
from ..loop.holder import HeldLeases
from ..loop.isolation import Isolation
from ..position.gaps import Gaps
from ..shared.outage import Outage
from ..shared.sync import AutoResetEvent
from .cancel_requests import CancelRequests
from .claim import RangeClaimer
from .range_source import range_loop
from .selection import Idle, Pace
from .urgency import TurnsRefused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anyio.abc import TaskGroup, TaskStatus

    from sa_outbox.declare.listener import Listener

    from ..lease.lease import Lease
    from ..loop.loop import DeliveryLoop
    from ..shared.context import ConsumerContext
    from .range_source import RangeSource
    from .selection import Again, ClaimedRange

LAST_SAVE_SECONDS = 1.0
"""Seconds for the last write of a cursor that only passed events: otherwise the next process does
it."""


class Queue:
    def __init__(self, context: ConsumerContext, listener: Listener, owner: str) -> None:
        self.listener = listener
        self.bell: AutoResetEvent = AutoResetEvent()
        """Rung when there may be something to claim, or room for it."""
        self.lived: Query = context.statements.ranges.suspects.lived
        self.renewal: Query = context.statements.ranges.renew
        self.held: dict[tuple[str, int], Lease] = {}
        self.holder: HeldLeases[RangeSource] = HeldLeases(context, self, self._loop)
        self._context = context
        self._owner = owner
        self._claimer = RangeClaimer(context, listener, owner)
        self._read = Query(ranges.read(context.tables, listener.on))
        self._slots = anyio.Semaphore(listener.concurrency, fast_acquire=True)
        self._limits = ConcurrencyLimits(listener, self._wake) if listener.is_limited else None
        self._pace = Pace(listener)
        self._fresh: dict[tuple[str, int], Sequence[Any]] = {}
        """What a claim returned, until a loop has it."""
        self._timed: dict[Lease, tuple[RangeSource, float]] = {}
        """What a claim returned, and when a loop began with it."""
        self._requests = CancelRequests(context, listener.name)
        self._isolation = Isolation(context, listener.name, context.refusals[listener.name])
        self._offered: Sequence[Any] = ()
        self._outage = Outage(Place("queue", listener.name), context.observers.emit)
        self.is_running: bool = False
        """It may still claim a range."""

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Works in a task group of its own: stopped, it releases its ranges."""
        self.is_running = True
        task_status.started()
        async with anyio.create_task_group() as tasks:
            try:
                await self._take_again_and_again(tasks)
                await best_effort(self._claimer.save_passed(), LAST_SAVE_SECONDS)
            finally:
                self.is_running = False
                self._context.progressed()

    async def _take_again_and_again(self, tasks: TaskGroup) -> None:
        while not self.holder.is_stopping:
            try:
                if self._requests.wanted:
                    await self._requests.look(self.holder.loops)
                pause = await self._save_passed(await self._take_all(tasks))
            except Exception as error:
                if not is_database_error(error):
                    raise
                pause = self._outage.goes_on(error)
            else:
                if self._outage.is_away:
                    self._outage.ends()
            self._context.progressed()
            await self.bell.wait(pause)

    async def _save_passed(self, pause: float | None) -> float | None:
        soon = self._claimer.pass_at - monotonic()
        if soon == inf:
            return pause
        if soon <= 0:
            await self._claimer.save_passed()
            return pause
        return soon if pause is None else min(soon, pause)

    def hurry(self, seconds: float) -> None:
        """Wait no longer than that for a claim that is under way."""
        self._claimer.shield.limit(seconds)

    def has_read(self, number: int) -> bool:
        """Everything visible at snapshot *number* is claimed, and what this process claimed is
        settled. True for a paused queue as soon as nothing is held."""
        return not self.held and (self._claimer.is_paused or self._claimer.has_read(number))

    def look_for_requests(self) -> None:
        """Somebody has cancelled an event that was claimed, perhaps by us."""
        self._requests.announced()
        self.bell.ring()

    def rests_at(self, number: int) -> int | None:
        """The id above which the next event can be offered; None: it has something to do."""
        return None if self.holder.is_stopping else self._claimer.rests_at(number)

    def offer(self, rows: Sequence[Any]) -> None:
        """Events that were read for all listeners, without a snapshot."""
        self._offered = rows[: self.listener.batch_size]
        self.bell.ring()

    def wake(self) -> None:
        """There may be something to claim."""
        self._claimer.forget()
        self.bell.ring()

    async def release(self, lease: Lease) -> None:
        """Release a range, with what is left of it."""
        connections, statements = self._context.connections, self._context.statements
        term, crashed = lease.term, lease.may_have_crashed
        if await connections.rows(statements.ranges.release, **term, crashed=crashed):
            await connections.rows(statements.notify_released)

    def forget(self, lease: Lease) -> None:
        if self.held.get(lease.key) is lease:
            del self.held[lease.key]
            self._fresh.pop(lease.key, None)
        if lease.is_lost:
            self._claimer.doubt()  # its events may be unclaimed again: a pooler hid a crash
        timed = self._timed.pop(lease, None)
        if timed is not None and lease.is_over:
            source, began = timed
            self._pace.ended(monotonic() - began, source.handling)

    def doubt(self) -> None:
        """A connection has ended: forget what was read or written before."""
        self._offered = ()
        self._claimer.doubt()

    def _wake(self) -> None:
        for loop in tuple(self.holder.loops.values()):
            loop.source.look_again()
            loop.wake()

    async def _take_all(self, tasks: TaskGroup) -> float | None:
        """Claim as long as there is room; then return for how long there is nothing to do, None:
        until rung."""
        is_withheld = self.listener.name in self._context.withheld
        if self._offered and not is_withheld and len(self.held) < self._pace.ranges:
            rows, self._offered = self._offered, ()
            at_once = await self._claimer.offered(rows)
            if at_once is not None:
                self._begin(tasks, at_once)
        while len(self.held) < self._pace.ranges and not self.holder.is_stopping:
            taken = await self._next_or_narrow()
            if isinstance(taken, Idle):
                return taken.seconds
            if taken != "again":
                self._begin(tasks, taken)
        return None

    def _begin(self, tasks: TaskGroup, taken: ClaimedRange) -> None:
        lease = taken.lease
        self.held[lease.key] = lease
        if taken.rows is None:
            count = Gaps.parse(lease.gaps).count
        else:
            self._fresh[lease.key] = taken.rows
            count = len(taken.rows)
        self._context.observers.emit(
            RangeTaken(lease.listener, lease.part, count, lease.crashes > 0)
        )
        tasks.start_soon(self.holder.work, lease)

    async def _next_or_narrow(self) -> ClaimedRange | Idle | Again:
        """Claim what is next. Events that the database refuses are found, so that they can be
        claimed and settled: now, or by the read that comes next."""
        try:
            return await self._claimer.next([part for _, part in self.held], self._pace.size)
        except ReadRefused as refused:
            await self._isolation.of_read(refused)
        except ParkRefused as refused:
            await self._isolation.of_parking(refused)
        except TurnsRefused:
            pass
        self._claimer.forget()
        return "again"

    def _loop(self, lease: Lease) -> DeliveryLoop[RangeSource]:
        rows = self._fresh.pop(lease.key, None)
        loop = range_loop(
            self._context,
            self.listener,
            lease,
            rows,
            read=self._read,
            slots=self._slots,
            limits=self._limits,
            changed=self.wake,
        )
        if rows:
            self._timed[lease] = loop.source, monotonic()
        else:  # made again after an outage: what it takes says nothing of the handlers
            self._timed.pop(lease, None)
        return loop
