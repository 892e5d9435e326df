"""From what a handler raised to what is to be written; and telling of it once it is."""

from __future__ import annotations

from datetime import UTC, datetime
from random import random
from typing import TYPE_CHECKING, Literal, assert_never

from sa_outbox.delivery import Dead, Done, Retry, decide
from sa_outbox.failure import Failure, describe
from sa_outbox.observe import AttemptFailed, DeadLettered, DeliverySettled

from .dispatch import Interrupted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sa_outbox.listener import Listener

    from .item import Fate, Item
    from .shared import Shared

_TOLD: dict[Fate, Literal["done", "retry", "dead", "cancelled"]] = {
    "done": "done",
    "hold": "retry",
    "park": "retry",
    "schedule": "retry",
    "dead": "dead",
    "cancel": "cancelled",
    "withdraw": "cancelled",
}


class Outcomes:
    def __init__(self, shared: Shared, listener: Listener) -> None:
        self._shared = shared
        self._listener = listener

    def decide_all(self, items: Iterable[Item], error: BaseException | None) -> None:
        """The same for all of a batch, whose fates are "done" before the attempt."""
        if error is not None:
            for item in items:
                self.decide(item, error)
        else:
            for item in items:
                item.attempts += 1

    def decide(self, item: Item, error: BaseException | None) -> None:
        """Set the item's fate after an attempt."""
        if isinstance(error, Interrupted):
            item.attempts += error.has_begun
            item.interrupted = error.has_begun
            item.fate, item.failure = "cancel", None
            return
        item.attempts += 1
        if error is None:
            item.fate, item.failure = "done", None
            return
        policy = self._listener.retry
        outcome = decide(
            error,
            attempt=item.attempts,
            policy=policy,
            chance=random(),  # noqa: S311 - jitter
            now=datetime.now(UTC),
        )
        item.failure = describe(error, attempt=item.attempts, redact=self._shared.redact)
        delay: float | None = None
        match outcome:
            case Retry() if item.cancel_requested:
                item.fate = "cancel"  # it failed, and nobody wants it any more
            case Retry():
                item.fate = self._waiting(item)
                item.delay = delay = outcome.delay.total_seconds()
            case Dead():
                item.fate, item.reason = "dead", outcome.reason
            case Done():  # pragma: no cover - only without an error
                item.fate = "done"
            case _:
                assert_never(outcome)
        self._shared.tell(
            AttemptFailed(
                self._listener.name,
                item.event_id,
                item.event_type,
                item.position,
                item.attempts,
                item.failure,
                delay,
            )
        )

    def convict(self, item: Item, crashes: int) -> None:
        """Give up an event that took the process with it, again and again, when it was alone."""
        item.fate, item.reason, item.crashes = "dead", "crashes", crashes
        text = f"the process died {crashes} times while this event alone was being handled"
        item.failure = Failure(item.attempts + 1, "crash", "crash", text)

    def tell(self, items: Iterable[Item]) -> None:
        """The fates of *items* are committed."""
        observers, name = self._shared.observers, self._listener.name
        if not observers:
            return
        for item in items:
            if item.fate == "behind" or (item.fate == "schedule" and item.failure is None):
                continue  # not attempted yet
            identity = (name, item.event_id, item.event_type, item.position, item.attempts)
            observers.tell(DeliverySettled(*identity, _TOLD[item.fate], item.seconds))
            if item.fate == "dead":
                observers.tell(DeadLettered(*identity, item.reason))

    def _waiting(self, item: Item) -> Fate:
        if item.state == "scheduled" or self._listener.order == "none":
            return "schedule"
        return "hold" if self._listener.order == "total" and not item.state else "park"
