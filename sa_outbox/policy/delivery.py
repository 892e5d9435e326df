"""What an attempt leads to. Decided here, without I/O; written by ``consumer/settle/writes.py``."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from ..errors import Reject, RetryLater, Undeliverable
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
    "waiting": frozenset({"running", "scheduled", "behind", "dead", "cancelled"}),
    "scheduled": frozenset({"running", "dead", "cancelled"}),
    "parked": frozenset({"running", "dead", "cancelled"}),
    "behind": frozenset({"parked", "running", "dead"}),
    "running": frozenset({"done", "parked", "scheduled", "dead", "waiting", "cancelled"}),
    "done": frozenset(),
    "dead": frozenset(),
    "cancelled": frozenset(),
}
"""Every legal transition. From running back to waiting: the process or its lease was lost, or
``order="total"`` waits for the next attempt with its cursor before the event."""

Outcome: TypeAlias = Literal[
    "done", "hold", "park", "schedule", "behind", "dead", "cancel", "withdraw"
]
"""What is written of a delivery. ``hold``: its lane waits, and its errors are in the listener's
row. ``behind``: an earlier event of its key is parked. ``withdraw``: cancelled before a task had
it; ``cancel``: after that."""


class Meaning(NamedTuple):
    state: State
    """After it is written."""
    observed: Literal["done", "retry", "dead", "cancelled"]


OUTCOMES: dict[Outcome, Meaning] = {
    "done": Meaning("done", "done"),
    "hold": Meaning("waiting", "retry"),
    "park": Meaning("parked", "retry"),
    "schedule": Meaning("scheduled", "retry"),
    "behind": Meaning("behind", "retry"),
    "dead": Meaning("dead", "dead"),
    "cancel": Meaning("cancelled", "cancelled"),
    "withdraw": Meaning("cancelled", "cancelled"),
}
"""Every outcome: the state it leads to, and the word observers get."""


def is_legal(before: State, outcome: Outcome) -> bool:
    """Whether *outcome* may be written of a delivery in the state *before*."""
    after = OUTCOMES[outcome].state
    return after == before or after in TRANSITIONS[before]


class IllegalMove(Exception):
    """An outcome that may not be written of a delivery in its state: a bug in this package, found
    before anything was written."""

    def __init__(self, before: State, outcome: Outcome) -> None:
        super().__init__(
            f"a bug in sa_outbox: {outcome!r} must not be written of a delivery that is {before}"
        )


Reason: TypeAlias = Literal["attempts", "rejected", "final", "crashes", "refused"]
"""Why a delivery was given up: attempts used up, ``Reject``, an error of ``final_on`` (or none of
``retry_on``), it crashed the process, or its outcome can't be written: the database can't read the
event or write that, or it would be an illegal move."""


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


Decision: TypeAlias = Done | Retry | Dead
DONE = Done()

LONGEST = timedelta(days=3650)
"""Longest delay of a retry: a longer one would exceed the range of PostgreSQL's clock."""


def decide(
    error: BaseException | None,
    *,
    attempt: int,
    policy: RetryPolicy,
    chance: float,
    now: datetime,
) -> Decision:
    """The outcome of *attempt* (counted from 1) that ended with *error*.

    *chance* is a random number from 0 up to 1, for the jitter; *now* is for an error that names a
    date for the retry. ``RetryLater`` counts as an attempt: otherwise a delivery that keeps asking
    for another one forever would never surface.
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
        # In addition to the policy's delay: "Retry-After: 0" must not make a listener retry without
        # pause.
        delay = max(delay, retry_after(error, now=now) or timedelta(0))
    return Retry(min(delay, LONGEST))


def _chosen_delay(error: BaseException) -> timedelta | None:
    """The delay of a ``RetryLater``. Its subclasses are user code and may not have called its
    init."""
    try:
        delay = getattr(error, "delay", None)
    except BaseException:  # noqa: BLE001 - a user's property may raise anything
        return None
    return delay if isinstance(delay, timedelta) else None
