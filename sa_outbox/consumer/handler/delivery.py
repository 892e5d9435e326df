"""An event in flight through one listener."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from sa_outbox.errors import DecodeError
from sa_outbox.event.codec import decode
from sa_outbox.event.event import Event, stored_event
from sa_outbox.event.row import (
    CREATED_AT,
    EVENT_ID,
    EVENT_TYPE,
    HEADERS,
    ID,
    KEY,
    PAYLOAD,
    PRIORITY,
    RUN_AT,
    TENANT,
)
from sa_outbox.event.types import event_types, version_of

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
    begun_again: str | None = None
    """The cause, as in ``attribution.Again.why``: a deadlock, a lost connection."""
    cancel_requested: bool = False
    interrupted: bool = False
    """Cancelled after its handler had started."""
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
    def event_type(self) -> str:
        found: str = self.row[EVENT_TYPE]
        return found


def load_event(row: Any, payload_class: type | None) -> Event[Any]:
    """Create the event that a handler gets: a new one for each attempt, because handlers modify
    things.

    Raises :class:`DecodeError` for a payload or header that can't be read.
    """
    headers = _headers(row[HEADERS])
    event_type: str = row[EVENT_TYPE]
    payload = event_types.load(event_type, version_of(headers), decode(row[PAYLOAD]))
    if payload_class is not None and not _fits(payload, payload_class):
        payload = _converted(payload, payload_class, event_type)
    return stored_event(
        event_type,
        payload,
        row[EVENT_ID],
        row[KEY],
        row[TENANT],
        headers,
        None if row[RUN_AT] is None else _time(row[RUN_AT]),
        row[PRIORITY],
        row[ID],
        _time(row[CREATED_AT]),
    )


class UnreadEvent(Event[Any]):
    """Its payload is decoded on first access."""

    __slots__ = ()

    @property
    def payload(self) -> Any:
        try:
            return self._payload
        except AttributeError:
            found = decode(self._text)
            object.__setattr__(self, "_payload", found)
            # Whoever has it may change it: from now on this is what is sent.
            object.__delattr__(self, "_text")
            return found


def load_unread(row: Any, payload_class: type | None) -> Event[Any]:
    """Create the event that a relay gets. Most relays send the payload exactly as stored, so it is
    not decoded, except for types with a class, whose older versions are upgraded before they are
    sent."""
    event_type: str = row[EVENT_TYPE]
    if event_types.knows(event_type):
        return load_event(row, payload_class)
    return stored_event(
        event_type,
        row[PAYLOAD],
        row[EVENT_ID],
        row[KEY],
        row[TENANT],
        _headers(row[HEADERS]),
        None if row[RUN_AT] is None else _time(row[RUN_AT]),
        row[PRIORITY],
        row[ID],
        _time(row[CREATED_AT]),
        UnreadEvent,
    )


def _headers(text: str) -> dict[str, Any]:
    if text == "{}":
        return {}
    headers = decode(text)
    if type(headers) is not dict:
        raise DecodeError("the stored headers are not an object")
    return headers


def _fits(payload: Any, payload_class: type) -> bool:
    try:
        return isinstance(payload, payload_class)
    except TypeError:  # a TypedDict: the converter checks its content
        return False


def _time(seconds: float) -> datetime:
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        raise DecodeError(f"a stored time ({seconds}) is outside Python's range") from None


def _converted(payload: Any, payload_class: type, event_type: str) -> Any:
    validate = getattr(payload_class, "model_validate", None)
    try:
        return msgspec.convert(payload, payload_class) if validate is None else validate(payload)
    except (ValueError, TypeError) as error:
        raise DecodeError(
            f"the payload of {event_type!r} does not fit {payload_class.__qualname__}, as which "
            "the handler's argument is annotated"
        ) from error
