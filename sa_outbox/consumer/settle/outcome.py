"""Decides what is written after an attempt, and reports it once it is committed."""

from __future__ import annotations

from dataclasses import replace
from random import random
from typing import TYPE_CHECKING, assert_never

from sa_outbox.clock import clock
from sa_outbox.event.row import EVENT_ID, EVENT_TYPE, ID
from sa_outbox.observe import (
    AttemptFailed,
    BatchSettled,
    DeadLettered,
    DeliverySettled,
    SettledGroup,
)
from sa_outbox.policy.delivery import OUTCOMES, Dead, Done, Retry, decide
from sa_outbox.policy.failure import Failure, describe

from ..handler.deadline import Interrupted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sa_outbox.declare.listener import Listener
    from sa_outbox.policy.delivery import Outcome

    from ..handler.delivery import InFlight
    from ..shared.context import ConsumerContext


class Outcomes:
    def __init__(self, context: ConsumerContext, listener: Listener) -> None:
        self._context = context
        self._listener = listener
        self._after_failure: Outcome = listener.order_mode.after_failure

    def decide_all(self, items: Iterable[InFlight], error: BaseException | None) -> None:
        """Decide for all of a batch, whose outcomes are "done" before the attempt."""
        if error is not None:
            described = None
            for item in items:
                described = self.decide(item, error, described)
        else:
            for item in items:
                item.attempts += 1

    def decide(
        self, item: InFlight, error: BaseException | None, described: Failure | None = None
    ) -> Failure | None:
        """Set the item's outcome after an attempt. Returns what is stored of the error: it is
        *described* for the next item of the batch, which failed with it too."""
        if isinstance(error, Interrupted):
            item.attempts += error.has_begun
            item.interrupted = error.has_begun
            item.outcome, item.failure = "cancel", None
            return None
        item.attempts += 1
        if error is None:
            item.outcome, item.failure = "done", None
            return None
        policy = self._listener.retry_of(item.row[EVENT_TYPE])
        decision = decide(
            error,
            attempt=item.attempts,
            policy=policy,
            chance=random(),  # noqa: S311 - jitter
            now=clock.current(),
        )
        if described is None:
            described = describe(error, attempt=item.attempts, redact=self._context.redact)
        item.failure = replace(described, attempt=item.attempts)
        delay: float | None = None
        match decision:
            case Retry() if item.cancel_requested:
                item.outcome = "cancel"  # it failed, and nobody wants it any more
            case Retry():
                item.outcome = self._waiting(item)
                item.delay = delay = decision.delay.total_seconds()
            case Dead():
                item.outcome, item.reason = "dead", decision.reason
            case Done():  # pragma: no cover - only without an error
                item.outcome = "done"
            case _:
                assert_never(decision)
        self._context.observers.emit(
            AttemptFailed(
                self._listener.name,
                item.row[EVENT_ID],
                item.row[EVENT_TYPE],
                item.row[ID],
                item.attempts,
                item.failure,
                delay,
                item.origin,
            )
        )
        return described

    def convict(self, item: InFlight, crashes: int) -> None:
        """Give up an event that took the process with it, again and again, when it was alone.

        The text says only what is known: a dead process looks like one that is cut off for good.
        """
        item.outcome, item.reason, item.crashes = "dead", "crashes", crashes
        text = (
            f"{crashes} times a process that handled nothing but this event was not heard of again "
            "(it died, was blocked or was cut off from the database), or was asked to exit"
        )
        item.failure = Failure(item.attempts + 1, "crash", "crash", text)

    def emit(self, items: Iterable[InFlight]) -> None:
        """The outcomes of *items* are committed."""
        if self._context.suspects.exist:
            self._answered_for(items)
        observers, name = self._context.observers, self._listener.name
        if not observers.all:
            return
        if observers.batched or observers.single:
            self._emit_settled(items)
        for item in items:
            if item.outcome == "dead":
                identity = (name, item.event_id, item.event_type, item.position, item.attempts)
                observers.emit(DeadLettered(*identity, item.reason, item.origin, item.failure))

    def _emit_settled(self, items: Iterable[InFlight]) -> None:
        observers, name = self._context.observers, self._listener.name
        attempted = [
            item
            for item in items
            if item.outcome == "done"
            or not (item.outcome == "behind" or (item.outcome == "schedule" and not item.failure))
        ]
        if observers.batched and attempted:
            observers.emit_batch(BatchSettled(name, _grouped(attempted)))
        for item in attempted if observers.single else ():
            row, outcome = item.row, OUTCOMES[item.outcome].observed
            identity = (name, row[EVENT_ID], row[EVENT_TYPE], row[ID], item.attempts)
            observers.emit_each(DeliverySettled(*identity, outcome, item.seconds, item.origin))

    def _answered_for(self, items: Iterable[InFlight]) -> None:
        suspects, name = self._context.suspects, self._listener.name
        for item in items:
            if item.outcome in ("done", "dead", "cancel", "withdraw"):
                suspects.clear([(name, item.position, item.event_id)])
            else:
                suspects.paid((name, item.position, item.event_id))

    def _waiting(self, item: InFlight) -> Outcome:
        if item.state == "scheduled":
            return "schedule"
        if item.state and self._after_failure == "hold":
            return "park"  # it has a row of its own: a replay
        return self._after_failure


def _grouped(items: Sequence[InFlight]) -> tuple[SettledGroup, ...]:
    found: dict[tuple[str, int, Outcome], list[float]] = {}
    for item in items:
        key = (item.row[EVENT_TYPE], item.attempts, item.outcome)
        if key in found:
            found[key].append(item.seconds)
        else:
            found[key] = [item.seconds]
    return tuple(
        SettledGroup(event_type, attempt, OUTCOMES[outcome].observed, seconds)
        for (event_type, attempt, outcome), seconds in found.items()
    )
