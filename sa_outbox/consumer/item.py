"""An event on its way through one listener."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from sa_outbox.codec import decode
from sa_outbox.errors import DecodeError
from sa_outbox.event import Event
from sa_outbox.event_types import event_types, version_of

if TYPE_CHECKING:
    from uuid import UUID

    from sa_outbox.delivery import Reason
    from sa_outbox.failure import Failure

Fate = Literal["done", "park", "behind", "schedule", "dead", "hold"]
"""What is to be written. ``hold``: its lane waits, and the errors are in the listener's row."""


class Item:
    """A row of the log, what is known of its earlier attempts, and what became of it."""

    __slots__ = (
        "attempts",
        "crashes",
        "delay",
        "failure",
        "fate",
        "key",
        "lane",
        "position",
        "reason",
        "row",
        "seconds",
        "single",
        "state",
        "tries",
    )

    def __init__(self, row: Any, lane: object, *, attempts: int = 0, state: str = "") -> None:
        self.row = row
        self.position: int = row[0]
        self.key: str | None = row[3]
        self.lane = lane
        """What must not run side by side: the key, or itself."""
        self.attempts = attempts
        """Failed ones, before this."""
        self.crashes = 0
        self.state = state
        """Of its row in the deliveries; empty when it has none."""
        self.fate: Fate = "done"
        self.delay = 0.0
        self.reason: Reason = "attempts"
        self.failure: Failure | None = None
        self.seconds = 0.0
        self.single = False
        """The batch it was in failed: it is attempted alone, to see which one it was."""
        self.tries = 0
        """Times it was begun again without being counted: a deadlock, a lost connection."""

    @property
    def event_id(self) -> UUID:
        found: UUID = self.row[1]
        return found

    @property
    def event_type(self) -> str:
        found: str = self.row[2]
        return found


def load_event(row: Any, payload_class: type | None) -> Event[Any]:
    """Make the event that a handler gets: a new one for each attempt, for handlers change things.

    Raises :class:`DecodeError` for a payload or header that can't be read.
    """
    text: str = row[6]
    headers: Any = {} if text == "{}" else decode(text)
    if type(headers) is not dict:
        raise DecodeError("the stored headers are not an object")
    event_type: str = row[2]
    payload = event_types.load(event_type, version_of(headers), decode(row[5]))
    if payload_class is not None and not _fits(payload, payload_class):
        payload = _converted(payload, payload_class, event_type)
    return Event(
        event_type,
        payload,
        event_id=row[1],
        key=row[3],
        tenant=row[4],
        headers=headers,
        run_at=None if row[7] is None else _time(row[7]),
        priority=row[8],
        position=row[0],
        created_at=_time(row[9]),
    )


def _fits(payload: Any, payload_class: type) -> bool:
    try:
        return isinstance(payload, payload_class)
    except TypeError:  # a TypedDict: it is for the converter to look inside
        return False


def _time(seconds: float) -> datetime:
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        raise DecodeError(f"a stored time ({seconds}) is beyond what Python can tell") from None


def _converted(payload: Any, payload_class: type, event_type: str) -> Any:
    validate = getattr(payload_class, "model_validate", None)
    try:
        return msgspec.convert(payload, payload_class) if validate is None else validate(payload)
    except (ValueError, TypeError) as error:
        raise DecodeError(
            f"the payload of {event_type!r} does not fit {payload_class.__qualname__}, as which "
            "the handler's argument is annotated"
        ) from error
