"""The events that a test added, as a list, and what is expected of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, overload
from uuid import UUID

from sa_outbox.errors import PayloadNotKnown
from sa_outbox.event.types import event_types, version_of

from .differences import ANYTHING, Expected, shown

State: TypeAlias = Literal["pending", "written", "committed"]
NEAREST = 3
"""How many events a failure shows in full."""


@dataclass(frozen=True, kw_only=True, repr=False)
class AddedEvent:
    """An event that was added, as it is stored."""

    event_id: UUID
    event_type: str
    key: str | None
    tenant: str | None
    headers: Mapping[str, str | int]
    run_at: datetime | None
    delay: timedelta | None
    priority: int
    idempotency_key: str | None
    state: State
    """``pending``: waits for the next flush. ``written``: its transaction is open. ``committed``:
    its session has committed, if only to the transaction that the test rolls back."""
    is_known: bool
    """False for a pending event whose payload or key is a callable: the flush evaluates it."""
    stored_payload: Any = field(default=None)
    """The payload as JSON has it."""

    @property
    def payload(self) -> Any:
        """What a handler gets: an object of the event type's class, or what JSON has."""
        if not self.is_known:
            raise PayloadNotKnown(
                f"the payload of {self.event_type!r} is a callable and was not evaluated yet; "
                "flush the session first"
            )
        if not event_types.knows(self.event_type):
            return self.stored_payload
        return event_types.load(self.event_type, version_of(self.headers), self.stored_payload)

    def __repr__(self) -> str:
        # With its payload: this is for the person who reads a failing test.
        known = shown(self.stored_payload) if self.is_known else "<payload known after the flush>"
        parts = [self.event_type, known]
        for name in ("key", "tenant", "idempotency_key", "run_at", "delay"):
            value = getattr(self, name)
            if value is not None:
                parts.append(f"{name}={value if isinstance(value, datetime) else repr(value)}")
        if self.priority:
            parts.append(f"priority={self.priority}")
        if self.headers:
            parts.append(f"headers={shown(dict(self.headers))}")
        return f"{' '.join(parts)} ({self.state})"


class AddedEvents(Sequence[AddedEvent]):
    """The events that were added and not rolled back, in order; it is always up to date.

    A test's code may still be in its transaction, may have committed it, or only seem to, in a
    transaction that is rolled back after the test.
    """

    def __init__(
        self,
        read: Callable[[], tuple[list[AddedEvent], list[str]]],
        forget: Callable[[], None],
    ) -> None:
        """*read* returns the events, and the types of those that were rolled back."""
        self._read = read
        self._forget = forget

    def __len__(self) -> int:
        return len(self._events)

    @overload
    def __getitem__(self, index: int) -> AddedEvent: ...

    @overload
    def __getitem__(self, index: slice) -> list[AddedEvent]: ...

    def __getitem__(self, index: int | slice) -> AddedEvent | list[AddedEvent]:
        return self._events[index]

    def __repr__(self) -> str:
        return "\n".join(["added events:", *(f"  {each!r}" for each in self._events)])

    @property
    def types(self) -> list[str]:
        """The event types, in order."""
        return [each.event_type for each in self._events]

    def of(self, event: str | type) -> list[AddedEvent]:
        """The events of one type, given by name, pattern (``"order.*"``) or class."""
        return _matching(Expected(event, ANYTHING, {}), self._events)

    def clear(self) -> None:
        """Forget what was added so far: what the test only prepared."""
        self._forget()

    def expect(self, event: object, payload: object = ANYTHING, /, **fields: object) -> AddedEvent:
        """The one event of this type that has this *payload*, or these *fields* in it.

        ::

            outbox_events.expect("order.placed", order_id=7)
            outbox_events.expect(OrderPlaced(order_id=7))

        Raises AssertionError if there is none, showing the nearest, or more than one.
        """
        __tracebackhide__ = True
        return self.expect_count(1, event, payload, **fields)[0]

    def expect_count(
        self, count: int, event: object, payload: object = ANYTHING, /, **fields: object
    ) -> list[AddedEvent]:
        """All events of this type with this *payload* or *fields*: exactly *count* of them."""
        __tracebackhide__ = True
        expected = Expected(event, payload, fields)
        events, undone = self._read()
        found = _matching(expected, events)
        if len(found) != count:
            raise AssertionError(_failure(expected, count, found, events, undone))
        return found

    def expect_none(self, event: object, payload: object = ANYTHING, /, **fields: object) -> None:
        """There is no event of this type with this *payload* or *fields*."""
        __tracebackhide__ = True
        self.expect_count(0, event, payload, **fields)

    @property
    def _events(self) -> list[AddedEvent]:
        return self._read()[0]


def added_event(row: Mapping[str, Any], state: State, key: str | None) -> AddedEvent:
    """From the row that is, or will be, sent to the database. *key* is its idempotency key."""
    run_at, delay = row.get("run_at"), row.get("delay")
    return AddedEvent(
        event_id=UUID(row["event_id"]),
        event_type=row["event_type"],
        key=row.get("key"),
        tenant=row.get("tenant"),
        headers=MappingProxyType(row.get("headers") or {}),
        run_at=None if run_at is None else datetime.fromisoformat(run_at),
        delay=None if delay is None else timedelta(seconds=delay),
        priority=row.get("priority", 0),
        idempotency_key=key,
        state=state,
        is_known="payload" in row,
        stored_payload=row.get("payload"),
    )


def _matching(expected: Expected, events: Sequence[AddedEvent]) -> list[AddedEvent]:
    return [
        each for each in events if not expected.differences(each.event_type, each.stored_payload)
    ]


def _failure(
    expected: Expected,
    count: int,
    found: Sequence[AddedEvent],
    events: Sequence[AddedEvent],
    undone: Sequence[str],
) -> str:
    wanted = {0: "no event", 1: "one event"}.get(count, f"{count} events")
    lines = [f"expected {wanted} {expected}, found {len(found)}"]
    if len(found) > count:
        lines += [f"  {number}. {each!r}" for number, each in enumerate(found, 1)]
        if count == 1:
            lines.append("  expect_count(...) is for more than one")
        return "\n".join(lines)
    others = [each for each in events if each not in found]
    lines.append(f"  {_events(len(events))} in all{'; the nearest:' if others else ''}")
    others.sort(key=lambda each: expected.distance(each.event_type, each.stored_payload))
    for number, each in enumerate(others[:NEAREST], 1):
        lines.append(f"  {number}. {each!r}")
        reasons = expected.differences(each.event_type, each.stored_payload)
        if not each.is_known and expected.is_type(each.event_type):
            reasons = ["payload: not known before the flush; flush the session first"]
        lines += [f"       {reason}" for reason in reasons]
    if undone:
        lines.append(f"  rolled back: {', '.join(undone)}")
    return "\n".join(lines)


def _events(count: int) -> str:
    return {0: "no event was added", 1: "1 event was added"}.get(
        count, f"{count} events were added"
    )
