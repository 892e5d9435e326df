"""What one drain has done, counted as it is settled; with a limit, what may still begin. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sa_outbox.policy.delivery import OUTCOMES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..handler.delivery import InFlight


@dataclass(frozen=True, kw_only=True, slots=True)
class Drained:
    """What a drain has done, in this process. One event for two listeners counts twice."""

    handled: int = 0
    """Deliveries whose handler returned."""
    retried: int = 0
    """Attempts that failed and are followed by another one: in this drain, or later."""
    dead: int = 0
    """Dead letters."""
    waiting: int = 0
    """Deliveries that are left for a later attempt: those that failed, and with ``order="key"``
    those behind one that failed. Events scheduled for later are not counted."""
    limited: bool = False
    """It ended because of its limit: there may be more to do."""


class Tally:
    """Counts for one drain.

    Invariant: with a *limit*, no more than that many attempts are begun. Those in flight count, so
    that tasks side by side can't exceed it together; one that is put back without having been
    attempted does not count any more.
    """

    def __init__(self, limit: int | None = None) -> None:
        self._limit = limit
        self._counts = {"done": 0, "retry": 0, "dead": 0, "cancelled": 0}
        self._waiting: set[tuple[str, int]] = set()
        self._in_flight: set[tuple[str, int]] = set()
        """Only with a limit."""
        self._attempts = 0
        self._was_refused = False

    @property
    def left(self) -> int | None:
        """How many attempts may begin; None: there is no limit."""
        if self._limit is None:
            return None
        return max(0, self._limit - self._attempts - len(self._in_flight))

    def refused(self) -> None:
        """A task wanted one, and none was left."""
        self._was_refused = True

    def is_open_again(self) -> bool:
        """Whether a task was refused, and would not be now. True once."""
        if not self._was_refused or not self.left:
            return False
        self._was_refused = False
        return True

    def began(self, listener: str, items: Iterable[InFlight]) -> None:
        self._in_flight.update((listener, item.position) for item in items)

    def put_back(self, listener: str, items: Iterable[InFlight]) -> None:
        # One that is held was attempted: it waits in its lane for its failure to be settled.
        self._in_flight.difference_update(
            (listener, item.position) for item in items if item.outcome != "hold"
        )

    def settled(self, listener: str, items: Sequence[InFlight]) -> None:
        """The outcomes of *items* are committed."""
        if self._limit is None and not self._waiting:
            # As in nearly every drain. One by one, they would cost it a tenth.
            others = [item for item in items if item.outcome != "done"]
            self._counts["done"] += len(items) - len(others)
            items = others
        for item in items:
            place = (listener, item.position)
            if place in self._in_flight:
                self._in_flight.remove(place)
                self._attempts += 1
            if item.outcome == "schedule" and item.failure is None:
                continue  # its time has not come
            if item.outcome != "behind":
                self._counts[OUTCOMES[item.outcome].observed] += 1
            if OUTCOMES[item.outcome].observed == "retry":
                self._waiting.add(place)
            else:
                self._waiting.discard(place)

    def result(self) -> Drained:
        counts = self._counts
        return Drained(
            handled=counts["done"],
            retried=counts["retry"],
            dead=counts["dead"],
            waiting=len(self._waiting),
            limited=self.left == 0,
        )
