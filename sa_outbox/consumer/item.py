"""An event on its way through one listener."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from sa_outbox.codec import decode
from sa_outbox.errors import DecodeError
from sa_outbox.event import Event, stored_event
from sa_outbox.event_types import event_types, version_of

if TYPE_CHECKING:
    from uuid import UUID

    from sa_outbox.delivery import Reason
    from sa_outbox.failure import Failure

Fate = Literal["done", "park", "behind", "schedule", "dead", "hold", "cancel", "withdraw"]
"""What is to be written. ``hold``: its lane waits, and the errors are in the listener's row.
``withdraw``: cancelled before a hand had it; ``cancel``: after that."""


class Item(msgspec.Struct, eq=False, gc=False):
    """A row of the log, what is known of its earlier attempts, and what became of it.

    Out of the garbage collector's sight: there are so many at a time that it would run for each
    batch and look at all of them, and none refers to what could lead back to it.
    """

    row: Any
    lane: object
    """What must not run side by side: the key, or itself."""
    attempts: int = 0
    """Failed ones, before this."""
    state: str = ""
    """Of its row in the deliveries; empty when it has none."""
    crashes: int = 0
    fate: Fate = "done"
    delay: float = 0.0
    reason: Reason = "attempts"
    failure: Failure | None = None
    seconds: float = 0.0
    single: bool = False
    """The batch it was in failed: it is attempted alone, to see which one it was."""
    tries: int = 0
    """Times it was begun again without being counted: a deadlock, a lost connection."""
    marked: int = 0
    """Times it was attempted alone in a row, as counted when this process began with it."""
    cancel_requested: bool = False
    interrupted: bool = False
    """Cancelled when its handler had begun."""
    result: tuple[str, float] | None = None
    """The reference that the handler left, and for how many seconds it is kept."""

    def __repr__(self) -> str:
        return f"<Item {self.position}>"  # and no payload: a repr ends in logs

    @property
    def position(self) -> int:
        found: int = self.row[0]
        return found

    @property
    def key(self) -> str | None:
        found: str | None = self.row[3]
        return found

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
    headers = _headers(row[6])
    event_type: str = row[2]
    payload = event_types.load(event_type, version_of(headers), decode(row[5]))
    if payload_class is not None and not _fits(payload, payload_class):
        payload = _converted(payload, payload_class, event_type)
    return stored_event(
        event_type,
        payload,
        row[1],
        row[3],
        row[4],
        headers,
        None if row[7] is None else _time(row[7]),
        row[8],
        row[0],
        _time(row[9]),
    )


class UnreadEvent(Event[Any]):
    """Its payload is decoded when somebody asks for it."""

    __slots__ = ()

    @property
    def payload(self) -> Any:
        try:
            return self._payload
        except AttributeError:
            found = decode(self._text)
            object.__setattr__(self, "_payload", found)
            # Whoever has it may change it: from now on it is what is to be sent.
            object.__delattr__(self, "_text")
            return found


def load_unread(row: Any, payload_class: type | None) -> Event[Any]:
    """The same for a relay: most send the payload as it is stored, digit by digit, and nobody has
    to read it. But for types with a class, whose older versions are sent as the present one."""
    event_type: str = row[2]
    if event_types.knows(event_type):
        return load_event(row, payload_class)
    return stored_event(
        event_type,
        row[5],
        row[1],
        row[3],
        row[4],
        _headers(row[6]),
        None if row[7] is None else _time(row[7]),
        row[8],
        row[0],
        _time(row[9]),
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
