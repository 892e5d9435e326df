"""An event in flight through one listener."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec

from sa_outbox.event.origin import Origin
from sa_outbox.event.row import EVENT_ID, EVENT_TYPE, HEADERS, ID, KEY, TENANT

if TYPE_CHECKING:
    from uuid import UUID

    from sa_outbox.policy.delivery import Outcome, Reason, State
    from sa_outbox.policy.failure import Failure


class InFlight(msgspec.Struct, eq=False, gc=False):
    """A row of the log, its earlier attempts, and its outcome.

    Not tracked by the garbage collector: there are enough of them that it would run for each batch
    and visit all of them, and none can be part of a cycle.
    """

    row: Any
    lane: object
    """What must not run concurrently: the key, or the event itself."""
    attempts: int = 0
    """Earlier failed attempts."""
    state: State | Literal[""] = ""
    """State of its row in the deliveries; empty when it has none."""
    crashes: int = 0
    outcome: Outcome = "done"
    delay: float = 0.0
    reason: Reason = "attempts"
    failure: Failure | None = None
    seconds: float = 0.0
    single: bool = False
    """The batch it was in failed: it is attempted alone, to find the culprit."""
    tries: int = 0
    """How often in a row it was restarted for one cause without being counted."""
    restarted_for: str | None = None
    """The cause, as in ``attribution.Again.why``: a deadlock, a lost connection."""
    cancel_requested: bool = False
    interrupted: bool = False
    """Its handler had started and came to no end: it was cancelled, or raised SystemExit."""
    aside: bool = False
    """It never was in a lane."""
    without: tuple[str, ...] = ()
    """What a dead letter's copy of it must omit: see ``fault/refusals.py``."""
    result: tuple[str, float] | None = None
    """The reference that the handler left, and for how many seconds it is kept."""

    def __repr__(self) -> str:
        return f"<Item {self.position}>"  # without the payload: a repr ends up in logs

    @property
    def was_attempted(self) -> bool:
        """Whether its outcome comes from an attempt."""
        return self.failure is not None or self.outcome in ("done", "dead", "hold", "cancel")

    @property
    def state_before(self) -> State:
        """Its state before it is settled. One that never was in a lane has not run."""
        if self.was_attempted and not self.aside:
            return "running"
        return self.state or "waiting"

    @property
    def position(self) -> int:
        found: int = self.row[ID]
        return found

    @property
    def key(self) -> str | None:
        found: str | None = self.row[KEY]
        return found

    @property
    def event_id(self) -> UUID:
        found: UUID = self.row[EVENT_ID]
        return found

    @property
    def origin(self) -> Origin:
        return Origin(self.row[TENANT], self.row[HEADERS])

    @property
    def event_type(self) -> str:
        found: str = self.row[EVENT_TYPE]
        return found
