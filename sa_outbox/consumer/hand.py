"""A hand takes an event from the lanes, has it handled, and says what became of it."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any

import anyio

from sa_outbox.causation import handled
from sa_outbox.errors import RelayUnavailable, SomeFailed
from sa_outbox.event import left_results
from sa_outbox.observe import DatabaseAway, DatabaseBack, WentCareful

from .dispatch import Dispatch
from .item import load_event
from .resting import Rest
from .unit import Again, Unit

if TYPE_CHECKING:
    from uuid import UUID

    from sa_outbox.event import Event

    from .cursor import Cursor
    from .item import Item

MOST_TRIES = 3
"""Times an attempt is begun again after a deadlock or the like before it counts as failed."""
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
AT_A_STRETCH = 0.005
"""Seconds after which a hand lets others run, when its handler never waits for anything."""


class Hand:
    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self._shared = shared = cursor.shared
        self._listener = listener = cursor.listener
        self._gate = shared.gate
        self._dispatch = Dispatch(
            listener, shared.threads, shared.observers, self._stuck, shared.lifetime
        )
        cursor.calls.append(self._dispatch)
        self._unit = None if listener.call.session == "none" else self._make_unit()
        self._wanted = anyio.Event()
        self._where = f"handler of {listener.name}"
        self._away = False
        self._rest = Rest(listener.name, shared.tell)
        self._give_way_at = 0.0
        call = listener.call
        self._is_plain = (
            call.is_async
            and call.session == "none"
            and not call.batch
            and not self._dispatch.is_traced
        )

    async def run(self) -> None:
        """Attempt events until cancelled. Errors that are not a handler's end the cursor."""
        try:
            slots = self._cursor.slots
            while True:
                if self._rest.pause:
                    await self._rest.wait()
                if slots is None:
                    found = await self._work()
                else:
                    async with slots:
                        found = await self._work()
                if not found:
                    self._wanted = anyio.Event()
                    self._cursor.hand_idles(self._wanted)
                    await self._wanted.wait()
        except Exception as error:  # noqa: BLE001 - the pump raises it, where it is sorted out
            self._cursor.fail(error)
        finally:
            self._dispatch.close()

    async def _work(self) -> bool:
        """Attempt what is next; False: there was nothing."""
        if self._is_plain and not self._rest.is_away:
            await self._attempt_plainly()
            if self._rest.pause:
                return True
        items = self._take()
        if not items:
            return False
        await self._attempt_all(items)
        if monotonic() >= self._give_way_at:
            await self._give_way()
        return True

    async def _attempt_plainly(self) -> None:
        """The same for the usual case, one event after the other, with as little around it as can
        be: a handler without session or batch, and no crash to look into.

        Nobody else runs between two events unless a handler waits. So the hand counts as one that
        has an event and is inside the gate from the first to the last of them.
        """
        cursor, gate, rest = self._cursor, self._gate, self._rest
        while not (cursor.stopping or cursor.caution.is_on or gate.is_closed or rest.pause):
            cursor.in_hand += 1
            gate.inside += 1
            try:
                failed = await self._sweep()
                if failed is None:
                    return
                await self._conclude([failed[0]], failed[1])
            finally:
                gate.leave()
                cursor.in_hand -= 1

    async def _sweep(self) -> tuple[Item, BaseException] | None:
        """Attempt events until one fails; None: nothing is left, or somebody wants it to end."""
        cursor, gate, dispatch = self._cursor, self._gate, self._dispatch
        take, handler, deadline = cursor.lanes.take, self._listener.handler, dispatch.deadline
        payload_class = self._listener.call.payload_class
        earlier, now = handled.set(None), monotonic()
        try:
            while not (cursor.stopping or gate.is_closed):
                item = take()
                if item is None:
                    return None
                item.fate, item.failure = "done", None
                try:
                    event = dispatch.argument = load_event(item.row, payload_class)
                except BaseException as unreadable:  # noqa: BLE001 - an upcaster is the user's code
                    self._settle_one(item, unreadable)
                    continue
                handled.set(event)
                deadline.begin(now)
                try:
                    value = await handler(event)
                except BaseException as raised:  # noqa: BLE001 - GeneratorExit is a failure too
                    deadline.is_calling, item.seconds = False, monotonic() - now
                    return item, dispatch.judge(raised)
                began, now = now, monotonic()
                deadline.is_calling, item.seconds = False, now - began
                if deadline.is_over:
                    return item, dispatch.cut_off()
                if value is not None and (error := dispatch.check_value(value)) is not None:
                    return item, error
                if left_results:
                    dispatch.note_result(item, event)
                item.attempts += 1
                cursor.done(item)
                if now >= self._give_way_at:
                    await self._give_way()
                    now = monotonic()
        finally:
            handled.reset(earlier)
        return None

    async def _give_way(self) -> None:
        """Else, for a whole batch, no other listener would run, nothing be settled and no lease
        renewed: slow handlers that never wait would lose it, and handle the batch again."""
        await anyio.sleep(0)
        self._give_way_at = monotonic() + AT_A_STRETCH

    def _take(self) -> list[Item]:
        cursor = self._cursor
        if cursor.stopping:
            return []
        if self._listener.call.batch:
            return cursor.lanes.take_batch(cursor.caution.window)
        item = cursor.lanes.take()
        return [] if item is None else [item]

    async def _attempt_all(self, items: list[Item]) -> None:
        cursor = self._cursor
        cursor.in_hand += len(items)
        try:
            if cursor.caution.alone:
                async with self._gate.alone():
                    await self._attempt_alone(items)
                    await cursor.settlement.settle()
            else:
                await self._gate.enter()
                try:
                    await self._attempt(items)
                finally:
                    self._gate.leave()
        finally:
            cursor.in_hand -= len(items)

    async def _attempt_alone(self, items: list[Item]) -> None:
        """After a crash: count before the handler runs, so that a death leaves its trace."""
        item = items[0]
        most = self._shared.settings.max_crashes
        # Once: what comes back is no death.
        crashes = item.marked = item.marked or await self._cursor.settlement.mark(item)
        if crashes > most:
            self._cursor.outcomes.convict(item, most)
            self._cursor.finish(items)
            return
        self._shared.tell(WentCareful(self._listener.name, item.position, crashes - 1))
        await self._attempt(items)

    async def _attempt(self, items: list[Item]) -> None:
        argument: Any
        items = self._without_cancelled(items)
        if not items:
            return
        for item in items:
            item.fate, item.failure, item.result = "done", None, None
        if self._listener.call.batch:
            items, argument = self._load_batch(items)
            if not items:
                return
        else:
            try:
                argument = self._dispatch.load(items[0])
            except BaseException as unreadable:  # noqa: BLE001 - an upcaster is the user's code
                self._settle_one(items[0], unreadable)
                return
        try:
            if self._unit is None:
                error = await self._dispatch(items, argument)
            else:
                error = await self._unit(items, argument)
        except Again as again:
            await self._begin_again(items, again)
            return
        await self._conclude(items, error)

    async def _conclude(self, items: list[Item], error: BaseException | None) -> None:
        if self._away:
            self._away = False
            self._shared.tell(DatabaseBack(self._where))
        if isinstance(error, KeyboardInterrupt):
            self._cursor.stop()  # at once: put back, the event would be taken again
            self._put_back(items)
            self._shared.stop("KeyboardInterrupt in a handler")
        elif isinstance(error, RelayUnavailable):
            self._put_back(items)
            self._rest.turned_away(error)
        elif isinstance(error, SomeFailed) and self._unit is None:
            self._conclude_each(items, error.errors)
        elif error is not None and len(items) > 1:
            # Which one of the batch it was is found out by attempting each alone.
            for item in items:
                item.single = True
            self._put_back(items)
        elif isinstance(error, SystemExit):
            await self._crashed(items[0], error)
        else:
            self._cursor.outcomes.decide_all(items, error)
            if self._unit is not None and error is None:
                self._cursor.committed(items)
            else:
                self._cursor.finish(items)
            self._rest.answered()

    def _conclude_each(self, items: list[Item], errors: dict[UUID, BaseException]) -> None:
        """Each has an end of its own; what waits behind a failed one of its lane has none yet."""
        ended: list[Item] = []
        held: dict[object, list[Item]] = {}
        away: RelayUnavailable | None = None
        for item in items:
            error = errors.get(item.event_id)
            if isinstance(error, RelayUnavailable):
                away = error
            if item.lane in held or isinstance(error, RelayUnavailable):
                held.setdefault(item.lane, []).append(item)
                continue
            self._cursor.outcomes.decide(item, error)
            ended.append(item)
            if item.fate not in ("done", "dead", "cancel"):
                held[item.lane] = []
        freed_by_finish = {item.lane for item in ended}
        for lane, waiting in held.items():
            self._cursor.lanes.put_back(waiting)
            if lane not in freed_by_finish:
                self._cursor.lanes.free(lane)
        if ended:
            self._cursor.finish(ended)
        if away is not None:
            self._rest.turned_away(away)
        else:
            self._rest.answered()

    def _settle_one(self, item: Item, error: BaseException) -> None:
        self._cursor.outcomes.decide(item, error)
        self._cursor.finish([item])

    def _load_batch(self, items: list[Item]) -> tuple[list[Item], list[Event[Any]]]:
        """Events of those that can be read; one that can't fails alone, those after it wait."""
        try:
            return items, self._dispatch.load_all(items)
        except BaseException:  # noqa: BLE001 - an upcaster is the user's code
            return self._load_each(items)

    def _load_each(self, items: list[Item]) -> tuple[list[Item], list[Event[Any]]]:
        good: list[Item] = []
        events: list[Event[Any]] = []
        behind: dict[object, list[Item]] = {}
        failed: list[tuple[Item, BaseException]] = []
        for item in items:
            if item.lane in behind:
                behind[item.lane].append(item)
                continue
            try:
                events.append(self._dispatch.load(item))
                good.append(item)
            except BaseException as unreadable:  # noqa: BLE001 - as above
                behind[item.lane] = []
                failed.append((item, unreadable))
        lanes = {item.lane for item in good}
        for item, error in failed:
            if item.lane in lanes:
                # Earlier ones of its lane go first; it is attempted when the lane is free again.
                self._cursor.lanes.put_back([item, *behind[item.lane]])
            else:
                self._cursor.lanes.put_back(behind[item.lane])
                self._settle_one(item, error)
        return good, events

    async def _begin_again(self, items: list[Item], again: Again) -> None:
        tries = items[0].tries
        for item in items:
            item.tries += 1
        if not again.away and tries >= MOST_TRIES:
            await self._conclude(items, again.cause)
            return
        if again.away:
            pause = min(FIRST_PAUSE * 2**tries, LONGEST_PAUSE)
            self._away = True
            self._shared.tell(DatabaseAway(self._where, type(again.cause).__name__, pause))
            await anyio.sleep(pause)
            if self._cursor.lease.has_ended():
                raise self._cursor.lease.lost()
        self._put_back(items)

    async def _crashed(self, item: Item, error: SystemExit) -> None:
        """A handler wanted the process to end: so it shall, but counted and in good order."""
        self._cursor.stop()
        crashes = await self._cursor.settlement.mark(item)
        if crashes >= self._shared.settings.max_crashes:
            self._cursor.outcomes.convict(item, crashes)
            self._cursor.finish([item])
        else:
            self._put_back([item])
        self._shared.stop(f"a handler of {self._listener.name!r} raised SystemExit({error.code})")

    def _without_cancelled(self, items: list[Item]) -> list[Item]:
        """Those that nobody has cancelled since they were taken from the lanes; the others end."""
        cancelled = [item for item in items if item.cancel_requested]
        if not cancelled:
            return items
        for item in cancelled:
            item.fate, item.failure = "cancel", None
        self._cursor.finish(cancelled)
        return [item for item in items if not item.cancel_requested]

    def _put_back(self, items: list[Item]) -> None:
        by_lane: dict[object, list[Item]] = {}
        for item in self._without_cancelled(items):
            by_lane.setdefault(item.lane, []).append(item)
        for lane, waiting in by_lane.items():
            self._cursor.lanes.put_back(waiting)
            self._cursor.lanes.free(lane)

    def _make_unit(self) -> Unit:
        cursor, shared = self._cursor, self._shared
        is_async = self._listener.call.session == "async"
        make = shared.async_sessions if is_async else shared.sync_sessions
        assert make is not None  # noqa: S101 - the consumer has made what its listeners need
        return Unit(
            make,
            self._dispatch,
            cursor.lease,
            cursor.progress,
            cursor.settlement,
        )

    def _stuck(self) -> None:
        self._shared.stop(f"a handler of {self._listener.name!r} ignored its cancellation")
