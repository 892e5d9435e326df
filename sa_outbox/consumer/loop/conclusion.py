"""What the end of an attempt means for the loop: settle, put back, restart, or stop."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from sa_outbox.errors import RelayUnavailable, SomeFailed
from sa_outbox.observe import DatabaseAway, DatabaseBack, Place
from sa_outbox.policy.backoff import pause_after

from ..fault.attribution import Again, Alone
from ..shared.stop_reason import StopReason

if TYPE_CHECKING:
    from uuid import UUID

    from ..handler.delivery import InFlight
    from ..shared.relay_backoff import RelayBackoff
    from ..transaction.group import Group
    from .port import Port

MAX_TRIES = 3
"""Times an attempt is restarted after a deadlock or the like before it counts as failed."""


class Conclusion:
    """Concludes the attempts of one task. *has_session*: each success is already committed."""

    def __init__(self, port: Port, backoff: RelayBackoff, *, has_session: bool) -> None:
        self._port = port
        self._context = port.context
        self._listener = port.listener
        self._lease = port.lease
        self._lanes = port.lanes
        self._settlement = port.settlement
        self._outcomes = port.outcomes
        self._backoff = backoff
        self._has_session = has_session
        self._where = Place("handler", port.listener.name)
        self._away = False

    async def conclude(self, items: list[InFlight], error: BaseException | None) -> None:
        if self._away:
            self._away = False
            self._context.observers.emit(DatabaseBack(self._where))
        if isinstance(error, KeyboardInterrupt):
            self._port.stop()  # at once: put back, the event would be taken again
            self.put_back(items)
            self._context.stop(StopReason.HANDLER, "KeyboardInterrupt in a handler")
        elif isinstance(error, RelayUnavailable):
            self.put_back(items)
            self._backoff.turned_away(error)
        elif isinstance(error, SomeFailed) and not self._has_session:
            self._conclude_each(items, error.errors)
        elif error is not None and len(items) > 1:
            # Which one of the batch it was is found out by attempting each alone.
            for item in items:
                item.single = True
            self.put_back(items)
        elif isinstance(error, SystemExit):
            await self._crashed(items[0], error)
        else:
            self._outcomes.decide_all(items, error)
            if self._has_session and error is None:
                self._port.committed(items)
            else:
                self._port.finish(items)
            if self._backoff.is_away:
                self._backoff.answered()

    async def conclude_group(self, group: Group, error: BaseException | None) -> None:
        """The events of one transaction: they are committed, or *error* is why they are not."""
        if error is not None:
            await self.conclude(group.all, error)
            return
        if group.failed is None:
            await self.conclude(group.items, None)
            return
        item, failure = group.failed
        self._outcomes.decide_all(group.items, None)
        self._port.committed(group.items, item)
        if isinstance(failure, Again):
            await self.restart([item], failure)
        elif isinstance(failure, Alone):
            item.single = True
            self.put_back([item])
        else:
            await self.conclude([item], failure)

    def _conclude_each(self, items: list[InFlight], errors: dict[UUID, BaseException]) -> None:
        """Each has an end of its own; what waits behind a failed one of its lane has none yet."""
        ended: list[InFlight] = []
        held: dict[object, list[InFlight]] = {}
        away: RelayUnavailable | None = None
        for item in items:
            error = errors.get(item.event_id)
            if isinstance(error, RelayUnavailable):
                away = error
            if item.lane in held or isinstance(error, RelayUnavailable):
                held.setdefault(item.lane, []).append(item)
                continue
            self._outcomes.decide(item, error)
            ended.append(item)
            if item.outcome not in ("done", "dead", "cancel"):
                held[item.lane] = []
        freed_by_finish = {item.lane for item in ended}
        for lane, waiting in held.items():
            self._lanes.put_back(waiting)
            if lane not in freed_by_finish:
                self._lanes.free(lane)
        if ended:
            self._port.finish(ended)
        if away is not None:
            self._backoff.turned_away(away)
        elif self._backoff.is_away:
            self._backoff.answered()

    def unreadable(self, item: InFlight, error: BaseException) -> None:
        """Its event could not be made of what is stored: an attempt that failed."""
        self._outcomes.decide(item, error)
        self._port.finish([item])

    async def restart(self, items: list[InFlight], again: Again) -> None:
        # In a row: a deadlock after three outages is the first one.
        tries = items[0].tries if items[0].restarted_for == again.why else 0
        for item in items:
            item.tries, item.restarted_for = tries + 1, again.why
            # Which one of the batch it is that loses its session is found out one by one.
            item.single = item.single or (again.why != "passing" and self._is_suspect(item))
        if again.why == "passing":
            if tries >= MAX_TRIES:
                await self.conclude(items, again.cause)
                return
        else:
            if again.why == "away":
                self._context.continuity.doubt()
            # The server answers: nobody has to wait for it.
            pause = 0.0 if again.why == "lost" else pause_after(tries)
            self._away = True
            self._context.observers.emit(
                DatabaseAway(self._where, type(again.cause).__name__, pause)
            )
            await anyio.sleep(pause)
            if self._lease.has_ended():
                raise self._lease.lost()
        self.put_back(items)

    def _is_suspect(self, item: InFlight) -> bool:
        return (self._listener.name, item.position, item.event_id) in self._context.suspects

    async def answer_for(self, items: list[InFlight]) -> bool:
        """Before suspects are attempted: what they owe is counted first, and each comes alone.
        False: they may be attempted."""
        if not self._has_session:
            return False
        if len(items) > 1:
            for item in items:
                item.single = item.single or self._is_suspect(item)
            if any(item.single for item in items):
                self.put_back(items)
                return True
            return False
        item = items[0]
        key = (self._listener.name, item.position, item.event_id)
        error = self._context.suspects.owed(key)
        if error is not None:
            await self.conclude(items, error)
        return error is not None

    async def _crashed(self, item: InFlight, error: SystemExit) -> None:
        """A handler wanted the process to end: so it shall, but counted and in good order."""
        self._port.stop()
        crashes = await self._settlement.notes.mark(item)
        if crashes >= self._context.settings.max_crashes:
            item.interrupted = True
            self._outcomes.convict(item, crashes)
            self._port.finish([item])
        else:
            self.put_back([item])
        reason = f"a handler of {self._listener.name!r} raised SystemExit({error.code})"
        self._context.stop(StopReason.HANDLER, reason)

    def without_cancelled(self, items: list[InFlight]) -> list[InFlight]:
        """Those that nobody has cancelled since they were taken from the lanes; the others end."""
        cancelled = [item for item in items if item.cancel_requested]
        if not cancelled:
            return items
        for item in cancelled:
            item.outcome, item.failure = "cancel", None
        self._port.finish(cancelled)
        return [item for item in items if not item.cancel_requested]

    def put_back(self, items: list[InFlight]) -> None:
        by_lane: dict[object, list[InFlight]] = {}
        for item in self.without_cancelled(items):
            by_lane.setdefault(item.lane, []).append(item)
        for lane, waiting in by_lane.items():
            self._lanes.put_back(waiting)
            self._lanes.free(lane)
