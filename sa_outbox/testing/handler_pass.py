"""One listener and the events of the test's transaction: which are due, and their outcome."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from random import random
from typing import TYPE_CHECKING, TypeAlias

from sa_outbox.clock import clock
from sa_outbox.consumer.handler.delivery import InFlight
from sa_outbox.event.event import as_time
from sa_outbox.event.row import EVENT_ID, EVENT_TYPE, ID, KEY, RUN_AT, WAIT
from sa_outbox.policy.delivery import Dead, Retry, decide
from sa_outbox.policy.failure import describe

from .deliveries import Delivery

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime
    from typing import Any

    from sa_outbox.consumer.handler.call import HandlerCall
    from sa_outbox.declare.listener import Listener

    from .deliveries import Outcome
    from .transaction import OpenTransaction

log: logging.Logger = logging.getLogger("sa_outbox.testing")


@dataclass
class Progress:
    """How far an event has come with a listener."""

    attempts: int = 0
    due_at: datetime | None = None
    """Of the next attempt."""
    is_settled: bool = False


Place: TypeAlias = tuple[str, int]
"""A listener, and an event's position."""


@dataclass
class Memory:
    """What one call of ``deliver`` knows."""

    known: dict[Place, Progress]
    """How far events have come in this transaction."""
    attempted: set[Place] = field(default_factory=set)
    """By this call: what fails waits for the next one, whatever the clock says."""
    waiting: dict[Place, Delivery] = field(default_factory=dict)
    """What this call did not attempt."""


class HandlerPass:
    """*handler*: which one of the listener's."""

    def __init__(
        self, listener: Listener, handler: int, transaction: OpenTransaction, memory: Memory
    ) -> None:
        self._listener = listener
        self._number = handler
        self._handler = listener.handlers[handler]
        self._transaction = transaction
        self._memory = memory
        self._blocked: set[object] = set()
        self._found: list[Delivery] = []

    async def __call__(self, rows: Sequence[Any]) -> list[Delivery]:
        """Attempt what is due of *rows*; return what became of it."""
        batches = self._batches([row for row in rows if self._is_wanted(row)])
        first = next(batches, None)
        if first is None:
            return []
        call = self._transaction.caller(self._handler)
        try:
            await self._attempt(call, first)
            for batch in batches:
                await self._attempt(call, batch)
        finally:
            call.close()
        return self._found

    def _is_wanted(self, row: Any) -> bool:
        listener, event_type = self._listener, row[EVENT_TYPE]
        if not listener.takes(event_type, row.met):
            return False
        return not listener.members or listener.handler_of(event_type) == self._number

    def _batches(self, rows: Sequence[Any]) -> Iterator[list[InFlight]]:
        """What is due, decided one by one: an event that has failed blocks those behind it."""
        size = self._listener.batch_size if self._handler.call.batch else 1
        batch: list[InFlight] = []
        for row in rows:
            item = self._due(row)
            if item is not None:
                batch.append(item)
            if len(batch) == size:
                yield batch
                batch = []
        if batch:
            yield batch

    def _due(self, row: Any) -> InFlight | None:
        place = (self._listener.name, row[ID])
        known, waiting = self._memory.known.setdefault(place, Progress()), self._memory.waiting
        lane = self._listener.order_mode.lane(row[KEY], row[ID])
        if known.is_settled:
            return None
        if place in self._memory.attempted:
            self._blocked.add(lane)
        elif known.due_at is not None and known.due_at > clock.current():
            self._blocked.add(lane)
            waiting[place] = self._delivery(row, "waiting", due_at=known.due_at)
        elif row[WAIT] is not None and row[WAIT] > 0:
            waiting[place] = self._delivery(row, "waiting", due_at=as_time(row[RUN_AT]))
        elif lane in self._blocked:
            waiting[place] = self._delivery(row, "waiting")
        else:
            waiting.pop(place, None)
            return InFlight(row, lane, attempts=known.attempts)
        return None

    async def _attempt(self, call: HandlerCall, items: list[InFlight]) -> None:
        is_batch = self._handler.call.batch
        error: BaseException | None
        try:
            events = [call.load(item) for item in items]
            argument = events if is_batch else events[0]
        except Exception as unreadable:  # noqa: BLE001 - an upcaster is the user's code
            error = unreadable
        else:
            error = await self._transaction.attempt(call, self._handler, items, argument)
        if error is not None and not isinstance(error, Exception):
            raise error  # Ctrl-C, pytest.fail(): the test's, not the handler's
        if error is not None and len(items) > 1:
            for item in items:  # a consumer looks for the one that fails, too
                await self._attempt(call, [item])
            return
        for item in items:
            self._settle(item, error)

    def _settle(self, item: InFlight, error: BaseException | None) -> None:
        attempt, now = item.attempts + 1, clock.current()
        policy = self._listener.retry_of(item.event_type)
        place = (self._listener.name, item.position)
        known = self._memory.known[place]
        known.attempts = attempt
        self._memory.attempted.add(place)
        if error is None:
            known.is_settled = True
            result = None if item.result is None else item.result[0]
            self._add(item, "done", attempt=attempt, result_ref=result)
            return
        chance = random()  # noqa: S311 - jitter
        decision = decide(error, attempt=attempt, policy=policy, chance=chance, now=now)
        failure = describe(error, attempt=attempt, redact=self._transaction.outbox.settings.redact)
        more: dict[str, Any] = {"attempt": attempt, "failure": failure, "error": error}
        if isinstance(decision, Retry):
            known.due_at = now + decision.delay
            self._blocked.add(item.lane)
            self._add(item, "retry", due_at=known.due_at, **more)
        elif isinstance(decision, Dead):
            known.is_settled = True
            self._add(item, "dead", reason=decision.reason, **more)
        # pytest shows it with a test that fails, which may well be because of this.
        text = "listener %s raised for %s in attempt %d"
        where = self._listener.name, item.event_type, attempt
        log.warning(text, *where, exc_info=error)

    def _add(self, item: InFlight, outcome: Outcome, **more: Any) -> None:
        self._found.append(self._delivery(item.row, outcome, **more))

    def _delivery(self, row: Any, outcome: Outcome, **more: Any) -> Delivery:
        return Delivery(
            listener=self._listener.name,
            event_type=row[EVENT_TYPE],
            event_id=row[EVENT_ID],
            outcome=outcome,
            **more,
        )
