"""What an attempt leads to. Decided here, without I/O; written by ``consumer/settle.py``."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Literal, TypeAlias

from .errors import Reject, RetryLater, Undeliverable
from .retry_after import retry_after

if TYPE_CHECKING:
    from datetime import datetime

    from .retry import RetryPolicy

State: TypeAlias = Literal[
    "waiting", "scheduled", "parked", "behind", "running", "done", "dead", "cancelled"
]
"""``waiting``: in the log, not read yet. ``scheduled``, ``parked`` and ``behind`` have a row in
``outbox_deliveries``; ``running`` has one only if it had one before; ``done`` leaves no trace;
``dead`` is a row in ``outbox_dead_letters``; ``cancelled`` one in
``outbox_deliveries``, which stays."""

TRANSITIONS: dict[State, frozenset[State]] = {
    "waiting": frozenset({"running", "scheduled", "behind", "cancelled"}),
    "scheduled": frozenset({"running", "cancelled"}),
    "parked": frozenset({"running", "cancelled"}),
    "behind": frozenset({"parked", "running"}),
    "running": frozenset({"done", "parked", "scheduled", "dead", "waiting", "cancelled"}),
    "done": frozenset(),
    "dead": frozenset(),
    "cancelled": frozenset(),
}
"""Every legal move. From running back to waiting: the process or its lease was lost, or
``order="total"`` waits for the next attempt with its cursor in front of the event."""

Reason: TypeAlias = Literal["attempts", "rejected", "final", "crashes"]
"""Why a delivery was given up: attempts used up, ``Reject``, an error of ``final_on`` (or none of
``retry_on``), or the process died of it."""


@dataclass(frozen=True, slots=True)
class Done:
    """The handler returned."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Another attempt, after a delay."""

    delay: timedelta


@dataclass(frozen=True, slots=True)
class Dead:
    """No further attempt."""

    reason: Reason


Outcome: TypeAlias = Done | Retry | Dead
DONE = Done()

LONGEST = timedelta(days=3650)
"""No retry is farther away: what asks for more would be beyond what PostgreSQL's clock can tell."""


def decide(
    error: BaseException | None,
    *,
    attempt: int,
    policy: RetryPolicy,
    chance: float,
    now: datetime,
) -> Outcome:
    """What follows from *attempt* (counted from 1) that ended with *error*.

    *chance* is a random number from 0 up to 1, for the jitter; *now* is for an error that asks
    to be attempted again at a date. ``RetryLater`` counts as an attempt: a delivery that asks for
    another one for ever would otherwise never be seen.
    """
    if error is None:
        return DONE
    if isinstance(error, (Reject, Undeliverable)):
        return Dead("rejected")
    steers = isinstance(error, RetryLater)
    if not steers and policy.gives_up_on(error):
        return Dead("final")
    delay = policy.delay_after(attempt, chance=chance)
    if delay is None:
        return Dead("attempts")
    chosen = _chosen_delay(error) if steers else None
    if chosen is not None:
        delay = max(chosen, timedelta(0))
    else:
        # Not instead of the policy's: "Retry-After: 0" must not make a listener that never rests.
        delay = max(delay, retry_after(error, now=now) or timedelta(0))
    return Retry(min(delay, LONGEST))


def _chosen_delay(error: BaseException) -> timedelta | None:
    """Of ``RetryLater``, whose subclasses are the user's: they need not have called its init."""
    try:
        delay = getattr(error, "delay", None)
    except BaseException:  # noqa: BLE001 - a property of theirs
        return None
    return delay if isinstance(delay, timedelta) else None
