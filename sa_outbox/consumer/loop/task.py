"""A handler task: takes deliveries from the lanes and has them attempted, one after the other."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any

import anyio

from sa_outbox.observe import SuspectAttempted

from ..fault.attribution import Again
from ..shared.relay_backoff import RelayBackoff
from ..transaction.group import Group, GroupBroken
from .station import Stations

if TYPE_CHECKING:
    from ..handler.call import HandlerCall
    from ..handler.delivery import InFlight
    from ..transaction.transaction import HandlerTransaction
    from .conclusion import Conclusion
    from .port import Port


class HandlerTask:
    def __init__(self, port: Port, slots: anyio.Semaphore | None) -> None:
        context, listener = port.context, port.listener
        self._port, self._slots = port, slots
        self._keeps_slot = listener.concurrency == 1
        # With limits, an event that is taken counts as one that runs.
        self._share = 0 if listener.is_limited else listener.concurrency
        self._context = context
        self._listener = listener
        self._lease = port.lease
        self._lanes = port.lanes
        self._quarantine = port.quarantine
        self._settlement = port.settlement
        self._outcomes = port.outcomes
        self._gate = context.gate
        self._backoff = RelayBackoff(listener, context.observers.emit, context.outages)
        self._stations = Stations(port, self._backoff)
        self._is_plain = self._call.is_plain and not self._stations.are_several

    def request_cancel(self, position: int) -> None:
        """That event was cancelled: if it is being handled, tell its handler."""
        self._call.request_cancel(position)

    @property
    def _call(self) -> HandlerCall:
        return self._stations.now.call

    @property
    def _conclusion(self) -> Conclusion:
        return self._stations.now.conclusion

    async def run(self) -> None:
        """Attempt deliveries until cancelled. Errors that are not a handler's end the loop."""
        try:
            while True:
                if self._backoff.pause:
                    await self._backoff.wait()
                if self._slots is None:
                    found = await self._work()
                else:
                    async with self._slots:  # the only one is kept: see queue/queue.py
                        found = await self._work()
                        while found and self._keeps_slot and not self._backoff.pause:
                            found = await self._work()
                if not found:
                    wanted = anyio.Event()
                    self._port.idle(wanted)
                    await wanted.wait()
        except Exception as error:  # noqa: BLE001 - the loop raises it, where it is sorted out
            self._port.fail(error)
        finally:
            self._stations.close()

    async def _work(self) -> bool:
        """Attempt what is next; False: there was nothing."""
        if self._is_plain and not self._backoff.is_away:
            await self._attempt_plainly()
            if self._backoff.pause:
                return True
            if not self._lanes.count:
                return False
        items = self._take()
        if not items:
            return False
        await self._attempt_all(items)
        if monotonic() >= self._call.give_way_at:
            await self._call.give_way()
        return True

    def _take(self) -> list[InFlight]:
        if self._port.is_stopping:
            return []
        if self._listener.call.batch:
            return self._lanes.take_batch(self._quarantine.window)
        item = self._lanes.take()
        return [] if item is None else [item]

    async def _attempt_plainly(self) -> None:
        """The usual case with as little around it as can be: a handler without session or batch,
        and no crash to look into.

        Nobody else runs between two events unless a handler waits. So the task counts as one that
        has a delivery and is inside the gate from the first to the last of them.
        """
        port, gate, backoff, lanes = self._port, self._gate, self._backoff, self._lanes
        while lanes.count and not (
            port.is_stopping or self._quarantine.is_on or gate.is_closed or backoff.pause
        ):
            port.began(1)
            gate.inside += 1
            try:
                failed = await self._call.sweep(port, gate, lanes.take, self._conclusion.unreadable)
                if failed is None:
                    return
                await self._conclusion.conclude([failed[0]], failed[1])
            finally:
                gate.leave()
                port.ended(1)

    async def _attempt_all(self, items: list[InFlight]) -> None:
        self._port.began(len(items))
        try:
            if self._quarantine.alone:
                async with self._gate.alone(unless=self._is_stopping) as is_alone:
                    if not is_alone:
                        self._conclusion.put_back(items)
                        return
                    await self._attempt_alone(items)
                    await self._settlement.settle()
            else:
                await self._gate.enter()
                try:
                    if self._quarantine.is_on:
                        await self._settlement.notes.note(items)
                    await self._attempt(items)
                finally:
                    self._gate.leave()
        finally:
            self._port.ended(len(items))

    def _is_stopping(self) -> bool:
        return self._port.is_stopping

    async def _attempt_alone(self, items: list[InFlight]) -> None:
        """After a crash: count before the handler runs, so that a death leaves its trace."""
        item = items[0]
        most = self._context.settings.max_crashes
        # One that comes back is marked again, and counted once: the mark is the term's.
        crashes = await self._settlement.notes.mark(item)
        if crashes > most:
            self._outcomes.convict(item, most)
            self._port.finish(items)
            return
        identity = (item.event_id, item.event_type, item.position, item.attempts + 1)
        self._context.observers.emit(
            SuspectAttempted(self._listener.name, *identity, crashes - 1, item.origin)
        )
        await self._attempt(items)

    async def _attempt(self, items: list[InFlight]) -> None:
        """Prepare, load, call, conclude."""
        items = await self._prepare(items)
        if not items:
            return
        station = self._stations.now
        items, argument = station.arguments.load(items)
        if not items:
            return
        if station.transaction is None:
            error = await station.call(items, argument)
            await station.conclusion.conclude(items, error)
        else:
            await self._attempt_in_session(station.transaction, items, argument)

    async def _prepare(self, items: list[InFlight]) -> list[InFlight]:
        """Those that may be attempted now, by the station for them. Empty: an end was decided
        without an attempt, or they wait in their lanes again."""
        if any(item.cancel_requested for item in items):
            items = self._conclusion.without_cancelled(items)
            if not items:
                return []
        for item in items:
            item.outcome, item.failure, item.result = "done", None, None
        if self._stations.are_several:
            missing = self._stations.turn_to(items[0].event_type)
            if missing is not None:
                self._conclusion.unreadable(items[0], missing)
                return []
        if self._context.suspects.exist and await self._conclusion.answer_for(items):
            return []
        return items

    async def _attempt_in_session(
        self, transaction: HandlerTransaction, items: list[InFlight], argument: Any
    ) -> None:
        fits = self._stations.fits if self._stations.are_several else None
        group = Group(items, self._lanes, self._may_group, self._port.began, fits, self._share)
        try:
            error = await transaction(group, argument)
        except Again as again:
            await self._conclusion.restart(group.all, again)
        except GroupBroken as broken:
            broken.culprit.single = True
            self._conclusion.put_back(group.all)
        else:
            await self._conclusion.conclude_group(group, error)
        finally:
            self._port.ended(group.taken)

    def _may_group(self) -> bool:
        """Whether another event may join those that are being handled in one transaction."""
        if not self._listener.group_commit or self._listener.call.batch:
            return False
        unsafe = self._quarantine.is_on or self._gate.is_closed or self._context.suspects.exist
        return not (unsafe or self._port.is_stopping or self._lease.has_ended())
