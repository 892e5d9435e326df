"""A queue: one listener whose events any number of processes share out among themselves.

``run`` is the story. As long as there is room, the next range is taken: one that another process
has left, deliveries that are due, or new events; a stint works through each. Ranges are as large as
one process can handle in about a second, so that a second process finds something to do.
"""

from __future__ import annotations

from random import uniform
from time import monotonic
from typing import TYPE_CHECKING, Any

import anyio

from sa_outbox.observe import DatabaseAway, DatabaseBack, RangeTaken
from sa_outbox.sql import ranges

from .connections import Query, is_database_error
from .gate import Bell
from .requests import Requests
from .stint import Stint
from .taking import Taker
from .tenure import Tenures
from .turnstile import Turnstile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anyio.abc import TaskGroup

    from sa_outbox.listener import Listener

    from .cursor import Cursor
    from .lease import Lease
    from .shared import Shared
    from .taking import Again, Taken

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
A_STINT = 1.0
"""Seconds that a range should last."""
LOCKED = 0.1
"""Seconds until something is asked for again that is free, and that somebody has locked."""
MOST_SIDE_BY_SIDE = 8
USUAL, AT_SPEED = 500, 2000
"""Events in a range, if its handlers are so quick that this is a fraction of a second's work, and
have no session, no batches and no limits. A listener with a smaller ``batch_size`` than usual wants
small ranges."""
LOWEST = -(2**15)


class Pace:
    """How many events a range has, and how many ranges there are. Pure."""

    def __init__(self, listener: Listener) -> None:
        call = listener.call
        self._least = min(listener.concurrency, listener.batch_size)
        self._full = self._most = listener.batch_size
        is_plain = call.session == "none" and not call.batch and not listener.is_limited
        if is_plain and self._most >= USUAL:
            self._most = max(self._most, AT_SPEED)
        # With a session, each event is settled by itself, one after the other within a range.
        side_by_side = min(listener.concurrency, MOST_SIDE_BY_SIDE)
        self._ranges = 2 if call.session == "none" else max(2, side_by_side)
        # A handler that takes batches wants whole ones.
        first = self._full if call.batch else 4 * listener.concurrency
        self.size = min(first, self._full)

    @property
    def ranges(self) -> int:
        """How many this process may hold. At speed one more: the next is read meanwhile."""
        return self._ranges + (self.size > self._full)

    def ended(self, events: int, seconds: float) -> None:
        """A range of so many *events* took so long."""
        if seconds > 2 * A_STINT:
            self.size = max(self._least, self.size // 2)
        elif seconds < A_STINT / 2 and 2 * events >= self.size:
            factor = 4 if seconds < A_STINT / 8 else 2
            self.size = max(self.size, min(self._most, factor * events))


class Queue:
    def __init__(self, shared: Shared, listener: Listener, owner: str) -> None:
        self.listener = listener
        self.bell = Bell()
        """Rung when there may be something to take, or room for it."""
        self.held: dict[tuple[str, int], Lease] = {}
        self.stints = Tenures(shared, self, self._stint)
        self._shared = shared
        self._owner = owner
        self._taker = Taker(shared, listener, owner)
        self._read = Query(ranges.read(shared.tables, listener.on))
        self._slots = anyio.Semaphore(listener.concurrency, fast_acquire=True)
        self._turnstile = Turnstile(listener, self._wake) if listener.is_limited else None
        self._pace = Pace(listener)
        self._fresh: dict[tuple[str, int], Taken] = {}
        self._requests = Requests(shared, listener.name)
        self._turn = 0
        self._offered: Sequence[Any] = ()
        self._away = False
        self._is_paused = False

    async def run(self, tasks: TaskGroup) -> None:
        backoff = FIRST_PAUSE
        while not self.stints.stopping:
            try:
                await self._requests.look(self.stints.cursors)
                pause = await self._take_all(tasks)
            except Exception as error:
                if not is_database_error(error):
                    raise
                pause = backoff * uniform(0.5, 1.0)  # noqa: S311 - no secret
                self._tell_away(error, backoff)
                backoff = min(2 * backoff, LONGEST_PAUSE)
            else:
                backoff = FIRST_PAUSE
                if self._away:
                    self._away = False
                    self._shared.tell(DatabaseBack(self._where))
            self._shared.progressed()
            await self.bell.wait(pause)

    def has_read(self, look: int) -> bool:
        """Everything visible at that look is taken, and what this process took is settled. Of one
        that is paused nothing is waited for."""
        return not self.held and (self._is_paused or self._taker.has_read(look))

    def look_for_requests(self) -> None:
        """Somebody has cancelled an event that was taken, perhaps by us."""
        self._requests.wanted = True
        self.bell.ring()

    def rests_at(self, look: int) -> int | None:
        """The id above which the next event can be offered; None: it has something to do."""
        return None if self._is_paused or self.stints.stopping else self._taker.rests_at(look)

    def offer(self, rows: Sequence[Any]) -> None:
        """Events that were read for all listeners, without a look."""
        self._offered = rows
        self.bell.ring()

    def wake(self) -> None:
        """There may be something to take."""
        self._taker.forget()
        self.bell.ring()

    async def renew(self) -> None:
        """Renew what is held, drop what is lost, stop what is paused."""
        self.look_for_requests()
        leases = [lease for lease in self.held.values() if not lease.has_ended()]
        if not leases:
            return
        began = monotonic()
        rows = await self._shared.connections.rows(
            self._shared.statements.ranges.renew,
            names=[lease.listener for lease in leases],
            parts=[lease.part for lease in leases],
            tokens=[lease.token for lease in leases],
            duration=self._shared.settings.lease_duration.total_seconds(),
        )
        standing = {(row["name"], row["part"]): row["paused"] for row in rows}
        for lease in leases:
            stint = self.stints.cursors.get(lease.key)
            if lease.key in standing:
                lease.renewed(began)
                if standing[lease.key] and stint is not None:
                    stint.stop()
            elif not lease.is_over and not (isinstance(stint, Stint) and stint.may_have_ended):
                self.stints.drop(lease)

    def drop_expired(self) -> None:
        for lease in tuple(self.held.values()):
            if lease.has_ended():
                self.stints.drop(lease)

    async def release(self, lease: Lease) -> None:
        """Give a range back, with what is left of it."""
        connections, statements = self._shared.connections, self._shared.statements
        term = {"name": lease.listener, "part": lease.part, "token": lease.token}
        if await connections.rows(statements.ranges.release, **term, crashed=lease.is_lost):
            await connections.rows(statements.notify_released)

    def forget(self, lease: Lease) -> None:
        self.held.pop(lease.key, None)

    def _wake(self) -> None:
        for stint in tuple(self.stints.cursors.values()):
            stint.wake()

    @property
    def _where(self) -> str:
        return f"queue {self.listener.name}"

    def _tell_away(self, error: Exception, pause: float) -> None:
        self._away = True
        self._shared.tell(DatabaseAway(self._where, type(error).__name__, pause))

    async def _take_all(self, tasks: TaskGroup) -> float | None:
        """Take as long as there is room; then how long there is nothing to do, None: until rung."""
        is_withheld = self.listener.name in self._shared.withheld
        if self._offered and not is_withheld and len(self.held) < self._pace.ranges:
            rows, self._offered = self._offered, ()
            at_once = await self._taker.offered(rows)
            if at_once is not None:
                self._begin(tasks, at_once)
        while len(self.held) < self._pace.ranges and not self.stints.stopping:
            remembered = self._taker.remembered()
            state = remembered or await self._taker.state([part for _, part in self.held])
            self._is_paused = state is None or state["paused"] or is_withheld
            if self._is_paused:
                return self._shared.settings.poll_interval.total_seconds()
            taken = await self._next(state)
            if taken is None and remembered is None:
                return self._pause(state)
            if taken is None:
                self._taker.forget()  # what it says of times is old
                continue
            if taken == "again":
                continue
            self._begin(tasks, taken)
        return None

    def _begin(self, tasks: TaskGroup, taken: Taken) -> None:
        lease = taken.lease
        self.held[lease.key] = lease
        self._fresh[lease.key] = taken
        count = None if taken.rows is None else len(taken.rows)
        self._shared.tell(RangeTaken(lease.listener, lease.part, count, lease.crashes > 0))
        tasks.start_soon(self._work, lease, taken)

    async def _next(self, state: Any) -> Taken | Again | None:
        """What is to be taken next. Of four turns two go by priority, one to the delivery that
        has been due for longest, and one to the log: so nobody waits for ever."""
        taker, size = self._taker, self._pace.size
        taken: Taken | Again | None = None
        if state["free_in"] is not None and state["free_in"] <= 0:
            taken = await taker.abandoned([part for _, part in self.held])
            if taken is not None:
                return taken
        is_due = state["due_in"] is not None and state["due_in"] <= 0
        self._turn += 1
        turn = self._turn % 4
        if is_due and turn == 3:
            taken = await taker.due(size, least=LOWEST, by_age=True)
        elif is_due and turn != 0:
            taken = await taker.due(size, least=0)
        if taken is None and taker.has_new():
            taken = await taker.new(state, size)
        if taken is None and is_due:
            taken = await taker.due(size, least=LOWEST)
        return taken

    def _pause(self, state: Any) -> float | None:
        times = [each for each in (state["due_in"], state["free_in"]) if each is not None]
        if not times:
            return None
        # What is due or free by now and was not to be had is locked by somebody.
        return min(times) + 0.002 if min(times) > 0 else LOCKED

    async def _work(self, lease: Lease, taken: Taken) -> None:
        began = monotonic()
        await self.stints.work(lease)
        if taken.rows is not None and lease.is_over:
            self._pace.ended(len(taken.rows), monotonic() - began)

    def _stint(self, lease: Lease) -> Cursor:
        fresh = self._fresh.pop(lease.key, None)
        return Stint(
            self._shared,
            self.listener,
            lease,
            None if fresh is None else fresh.rows,
            read=self._read,
            slots=self._slots,
            turnstile=self._turnstile,
            changed=self.wake,
        )
