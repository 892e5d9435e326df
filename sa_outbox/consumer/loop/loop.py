"""One listener under one lease: take in, hand out, attempt, settle, wait.

``run`` and ``_take_in_and_settle`` are the story. The pump takes in what the source has next and
settles what is finished; as many tasks as the listener has ``concurrency`` take deliveries from the
lanes and attempt them. Only the pump takes in, and two tasks never have deliveries of one lane.

==========  =====================================================================================
take in     ``log_source.py``: due deliveries and new events. A range of a queue is taken in once,
            before: ``queue/range_source.py``
hand out    ``port.py`` wakes idle tasks, which take from ``lanes/``
attempt     ``task.py``: prepare, load (``handler/arguments.py``), call (``handler/call.py``; with a
            session ``transaction/transaction.py``, which settles too), conclude (``conclusion.py``)
settle      ``settle/buffer.py``: many deliveries and the cursor, in one transaction. Then
            ``port.py`` frees their lanes
wait        ``_wait_for_work``: until somebody rings, or it is time for something
==========  =====================================================================================
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any, Generic

import anyio

from sa_outbox.observe import CaughtUp

from .port import Port
from .source import S
from .task import HandlerTask

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from anyio import CancelScope
    from anyio.abc import TaskGroup

    from sa_outbox.declare.listener import Listener

    from ..fault.quarantine import CrashQuarantine
    from ..handler.delivery import InFlight
    from ..lease.lease import Lease
    from ..position.progress import Progress
    from ..settle.buffer import SettlementBuffer
    from ..shared.context import ConsumerContext
    from .source import Inflow


class DeliveryLoop(Generic[S]):
    def __init__(
        self,
        context: ConsumerContext,
        listener: Listener,
        lease: Lease,
        progress: Progress,
        quarantine: CrashQuarantine,
        source: S,
        *,
        slots: anyio.Semaphore | None = None,
    ) -> None:
        """*slots* are shared by all ranges of a queue: together they run ``concurrency``
        handlers."""
        lease.worked_by(progress)
        self.lease = lease
        self.source = source
        self.progress = progress
        self._port = Port(context, listener, lease, progress, quarantine, source)
        self.settlement: SettlementBuffer = self._port.settlement
        self._context = context
        self._listener = listener
        self._inflow = source.inflow
        self._lanes = self._port.lanes
        self._held = self._port.held
        self._quarantine = quarantine
        self._slots = slots
        self._handler_tasks: list[HandlerTask] = []
        self._caught_up_at = -1
        self._tasks: TaskGroup | None = None

    async def run(self) -> None:
        """Work until stopped. Raises :class:`LeaseLost`, or what the database raised."""
        if self._context.audit == "all":
            await self.settlement.notes.record_lost()
        unattempted = await self.source.begin()
        if unattempted is None:
            await self.settlement.write_off()
            self.lease.is_over = True
            return
        if unattempted:
            self.settle_unattempted(unattempted)
        if self._held is not None:
            self._held.begin()
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            tasks.start_soon(self._pump, tasks.cancel_scope)
            for _ in range(self._count_of_tasks()):
                tasks.start_soon(self._make_task().run)
        if self._port.ended_by is not None:
            if self._port.outage is not None:
                # Attempts that have ended: forgotten with this loop, they would be made again.
                await self.settlement.settle()
            if not self.lease.is_over:
                raise self._port.ended_by

    async def _pump(self, scope: CancelScope) -> None:
        """Ends *scope* with it: that of the tasks."""
        try:
            await self._take_in_and_settle()
        except Exception as error:  # noqa: BLE001 - raised by ``run``, outside of the group
            self._port.end(error)
        finally:
            scope.cancel()

    async def _take_in_and_settle(self) -> None:
        while True:
            self._check()
            if not self._port.is_stopping:
                await self._take_in()
                self._port.start_ready()
            if self._port.is_worth_settling:
                await self.settlement.settle()
            if self._port.is_stopping and not self._port.in_flight:
                await self._close()
                return
            await self._wait_for_work()

    async def _take_in(self) -> None:
        if self._held is not None:
            self._held.let_go_in_time()
        if self._inflow is not None:
            await self._inflow.take_in(self, self._room())

    async def _close(self) -> None:
        if self.lease.is_over:
            return  # its row is gone
        await self.settlement.settle()
        await self.settlement.save()
        await self.settlement.notes.take_back()
        if self._inflow is not None:
            await self._inflow.close()

    async def _wait_for_work(self) -> None:
        has_caught_up = await self._save_if_caught_up()
        if self._quarantine.is_over:
            self._quarantine.is_over = False
            await self.settlement.notes.forget_crashes()
        await self._port.changed.wait(self._pause(has_caught_up=has_caught_up))

    async def _save_if_caught_up(self) -> bool:
        """Never without an inflow: a range comes to its end, and its loop with it."""
        inflow = self._inflow
        if inflow is None or not self._has_caught_up(inflow):
            return False
        inflow.caught_up()
        if self._caught_up_at != self.progress.read_to:
            self._caught_up_at = self.progress.read_to
            self._context.observers.emit(CaughtUp(self._listener.name, self.progress.read_to))
        await self.settlement.save_in_time()
        self._context.progressed()
        return True

    def _has_caught_up(self, inflow: Inflow) -> bool:
        busy = self._port.in_flight or self.settlement.finished or self._lanes.count or self._held
        return not busy and not inflow.has_new(monotonic())

    def _count_of_tasks(self) -> int:
        size = self.source.size
        if size is None:
            return self._listener.concurrency
        # After a crash each one is settled when it has ended: then few are suspects of the next.
        self._port.settle_each(1 if self._quarantine.is_on else size)
        return min(self._listener.concurrency, size)

    def _make_task(self) -> HandlerTask:
        task = HandlerTask(self._port, self._slots)
        self._handler_tasks.append(task)
        return task

    # What others ask for

    def wake(self) -> None:
        self._port.changed.ring()

    def stop(self) -> None:
        """Begin no further delivery; ``run`` returns when those in flight are settled."""
        self._port.stop()

    @property
    def is_stopping(self) -> bool:
        return self._port.is_stopping

    @property
    def in_flight(self) -> int:
        """Deliveries that tasks have."""
        return self._port.in_flight

    def request_cancel(self, position: int) -> None:
        """Somebody cancelled that event: a waiting one goes, a running one is asked to stop."""
        withdrawn = self.source.withdraw(position)
        if withdrawn is not None:
            self._port.finish([withdrawn])
            return
        for task in self._handler_tasks:
            task.request_cancel(position)

    @property
    def may_have_ended(self) -> bool:
        """Its row is deleted, or is just being deleted: that it is gone does not mean it is lost.
        A write that is under way finds out by itself if it is."""
        if self.source.statements.finish is None:
            return False  # rows that stay
        return self.source.is_finished or self.settlement.lock.locked()

    @property
    def is_idle(self) -> bool:
        """Nothing that was taken in is left, but for one that waits for its next attempt."""
        return not (self._port.in_flight or self.settlement.finished)

    @property
    def holds_one(self) -> bool:
        return bool(self._held)

    @property
    def has_settled_all(self) -> bool:
        return not (self._lanes.count or self.progress.unsettled)

    # What the source asks for

    def _room(self) -> int:
        busy, size = self._lanes.count, self._quarantine.window
        if self._quarantine.is_on:
            busy += self._port.in_flight
            busy += len(self.settlement.finished)  # else the next batch is handled meanwhile
        elif not self._listener.call.batch:
            busy += self._port.in_flight
        elif self._port.in_flight > size:
            return 0  # one batch in flight: the next is read meanwhile; with more tasks, not each's
        # A few at a time would be many small reads.
        return size - busy if busy <= size // 2 else 0

    def settle_unattempted(self, items: Sequence[InFlight]) -> None:
        self.settlement.add(items)

    def start(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if self._tasks is not None:
            self._tasks.start_soon(work)

    def _check(self) -> None:
        if self._port.broken is not None:
            raise self._port.broken
        if self.lease.has_ended():
            raise self.lease.lost()

    def _pause(self, *, has_caught_up: bool) -> float | None:
        """How long there is nothing to do, unless somebody rings. Only times at which the pump
        will do something are among them: one that has passed would make it spin."""
        times = [self.settlement.latest_at] if self.settlement.finished else []
        if not self._port.is_stopping:
            save_at = self.settlement.save_at if has_caught_up else None
            held_until = None if self._held is None else self._held.until
            ready_at = self._lanes.ready_at
            if ready_at is not None and ready_at <= self._port.looked_at:
                ready_at = None  # whoever could take it knows; the others have handlers running
            wakeups = (held_until, ready_at, save_at)
            times += [each for each in wakeups if each is not None]
            if self._inflow is not None:
                has_room = has_caught_up or self._room() > 0
                times.append(self._inflow.next_at(has_room=has_room))
        return max(0.0, min(times) - monotonic()) if times else None
