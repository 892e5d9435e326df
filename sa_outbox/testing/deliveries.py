"""What became of each event, for each listener."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, overload

from sa_outbox.event.type_patterns import matcher, type_pattern

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from sa_outbox.policy.delivery import Reason
    from sa_outbox.policy.failure import Failure

Outcome: TypeAlias = Literal["done", "retry", "dead", "cancelled", "waiting"]


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """One event for one listener: what its last attempt led to."""

    listener: str
    event_type: str
    event_id: UUID
    outcome: Outcome
    """``waiting``: it was not attempted, because it is not due yet, or an earlier event of its key
    waits for a retry."""
    attempt: int = 0
    """Which one this was, counted from 1; 0 if there was none."""
    due_at: datetime | None = None
    """Of what waits for its time: when."""
    failure: Failure | None = None
    """What is stored of the error."""
    error: BaseException | None = None
    """What the handler raised, if it was called in this test's own transaction."""
    reason: Reason | None = None
    """Why there will be no further attempt."""
    result_ref: str | None = None
    """What the handler passed to ``leave_result``, if it was called in this test's own
    transaction."""

    def __str__(self) -> str:
        parts = [f"{self.listener}: {self.event_type} {self.outcome}"]
        if self.attempt > 1:
            parts.append(f"in attempt {self.attempt}")
        if self.due_at is not None:
            parts.append(f"until {self.due_at:%Y-%m-%d %H:%M:%S%z}")
        if self.reason is not None:
            parts.append(f"({self.reason})")
        if self.failure is not None:
            parts.append(f"after {self.failure.error}: {self.failure.message}")
        return " ".join(parts)


class Deliveries(Sequence[Delivery]):
    """What happened, in order."""

    def __init__(self, found: Iterable[Delivery]) -> None:
        self._all = tuple(found)

    def __len__(self) -> int:
        return len(self._all)

    @overload
    def __getitem__(self, index: int) -> Delivery: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Delivery, ...]: ...

    def __getitem__(self, index: int | slice) -> Delivery | tuple[Delivery, ...]:
        return self._all[index]

    def __repr__(self) -> str:
        return "\n".join(["deliveries:", *(f"  {each}" for each in self._all)])

    @property
    def failed(self) -> list[Delivery]:
        """Those whose handler raised."""
        return [each for each in self._all if each.failure is not None]

    def of(self, listener: str, event_type: str = "*") -> list[Delivery]:
        """Those of one *listener*, and of one event type or pattern."""
        wanted = matcher((type_pattern("deliveries", event_type),))
        return [each for each in self._all if each.listener == listener and wanted(each.event_type)]

    def one(self, listener: str, event_type: str = "*") -> Delivery:
        """The only one of this *listener*, and event type or pattern. Raises AssertionError."""
        __tracebackhide__ = True
        found = self.of(listener, event_type)
        if len(found) != 1:
            what = listener if event_type == "*" else f"{listener} for {event_type}"
            raise AssertionError(f"expected one delivery of {what}, found {len(found)}\n{self!r}")
        return found[0]

    def expect_done(self) -> None:
        """Everything was handled: nothing failed, and nothing waits. Raises AssertionError, from
        what the first handler raised."""
        __tracebackhide__ = True
        left = [each for each in self._all if each.outcome != "done"]
        if left:
            text = "\n".join(f"  {each}" for each in left)
            raise AssertionError(f"not everything was handled:\n{text}") from left[0].error
