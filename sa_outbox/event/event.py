"""The event: a fact, written once, in the transaction that made it true."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from datetime import time as time_of_day
from decimal import Decimal
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeAlias, TypedDict
from uuid import UUID

from ..errors import DecodeError, PayloadNotKnown, WrongArgument
from .codec import decode
from .ids import uuid7
from .validation import IDEMPOTENCY_KEY, check_kinds, checked_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import TypeVar

    # ``Event`` alone, in an annotation, is ``Event[Any]``. Only type checkers read the default.
    P_co = TypeVar("P_co", covariant=True, default=Any)
else:
    from typing import TypeVar

    P_co = TypeVar("P_co", covariant=True)

Scalar: TypeAlias = (
    str | float | bool | UUID | date | time_of_day | timedelta | Decimal | Enum | None
)
Json: TypeAlias = "Scalar | Sequence[object] | Mapping[str, object]"
"""What an untyped payload may be. Its content is checked when it is added: a stricter type would
make type checkers refuse every dict of mixed values that is not written in place."""

Deferred: TypeAlias = Callable[[], P_co]
"""A value known only after the flush, such as a database-generated primary key."""


OnDuplicate: TypeAlias = Literal["skip", "raise"]
"""What happens to an event whose idempotency key is taken: it is skipped, or the flush raises
``DuplicateEvent``."""


class EventOptions(TypedDict, total=False):
    """The keyword arguments that every way of adding an event takes."""

    key: str | Deferred[str | None] | None
    tenant: str | None
    headers: Mapping[str, str] | None
    run_at: datetime | None
    delay: timedelta | None
    priority: int
    idempotency_key: str | None
    on_duplicate: OnDuplicate


class _NotKnown(Enum):
    NOT_KNOWN = "not known before the flush"


OWN_TYPES: Final = "outbox."
"""Prefix of the outbox's own event types; nobody else may add such events."""
NOT_KNOWN: Final = _NotKnown.NOT_KNOWN
MAX_REFERENCE_BYTES: Final = 1000
_set = object.__setattr__

left_results: set[str] = set()
"""Event types with results of handlers of this process: usually none, so none are looked for."""


class EventFields(Generic[P_co]):
    """Its fields while they can still be set: see ``stored.py`` and ``producer/pending.py``."""

    __slots__ = (
        "__weakref__",
        "_attempt",
        "_cancel_requested",
        "_created_at",
        "_headers",
        "_idempotency_key",
        "_key",
        "_payload",
        "_result_ref",
        "_run_at",
        "_text",
        "duplicate_of",
        "event_id",
        "event_type",
        "position",
        "priority",
        "tenant",
    )

    event_id: UUID
    """Made by the producer (UUID version 7); the same for every listener and every attempt."""
    event_type: str
    tenant: str | None
    priority: int
    position: int | None
    """The event's position in the log; None on the producer's side, where it is unknown."""
    duplicate_of: UUID | None
    """Set by the flush: the earlier event with the same idempotency key, because of which this one
    was not written."""
    _key: str | _NotKnown | None
    # As stored, until somebody asks: a handler rarely reads all of its event.
    _headers: Mapping[str, str | int] | str
    _idempotency_key: str | None
    _run_at: datetime | float | None
    _created_at: datetime | float | None
    _text: str | None
    # Not set until needed: there is one event object per attempt, and few need these.
    _payload: P_co | _NotKnown
    _attempt: int
    _cancel_requested: bool
    _result_ref: str


class Event(EventFields[P_co]):
    """One event. Both sides use this class: ``add_event`` returns it, and a handler gets it.

    It is immutable: many listeners may see the same event.
    """

    __slots__ = ()

    def __init__(
        self,
        event_type: str,
        payload: P_co | _NotKnown,
        *,
        event_id: UUID | None = None,
        key: str | _NotKnown | None = None,
        tenant: str | None = None,
        headers: Mapping[str, str | int] | None = None,
        run_at: datetime | None = None,
        priority: int = 0,
        idempotency_key: str | None = None,
        position: int | None = None,
        created_at: datetime | None = None,
    ) -> None:
        check_kinds(str, event_type=event_type)
        check_kinds(str, or_none=True, tenant=tenant, idempotency_key=idempotency_key)
        check_kinds(datetime, or_none=True, run_at=run_at, created_at=created_at)
        check_kinds(int, or_none=True, priority=priority, position=position)
        check_kinds(UUID, or_none=True, event_id=event_id)
        check_kinds(Mapping, or_none=True, headers=headers)
        if key is not NOT_KNOWN:
            check_kinds(str, or_none=True, key=key)
        _set(self, "event_type", event_type)
        _set(self, "_payload", payload)
        _set(self, "_text", None)
        _set(self, "event_id", uuid7() if event_id is None else event_id)
        _set(self, "_key", key)
        _set(self, "tenant", tenant)
        _set(self, "_headers", {} if headers is None else headers)
        _set(self, "_run_at", run_at)
        _set(self, "priority", priority)
        _set(self, "_idempotency_key", idempotency_key)
        _set(self, "position", position)
        _set(self, "_created_at", created_at)
        _set(self, "duplicate_of", None)

    @property
    def payload(self) -> P_co:
        """The payload. On the producer's side, the object that was given; its value at that moment
        is what is stored. In a handler without a class for it, it is decoded when it is first read,
        and :class:`DecodeError` is raised if that is impossible."""
        if self._text is not None:
            _set(self, "_payload", decode(self._text))
            _set(self, "_text", None)  # whoever has the payload may change it
        if self._payload is NOT_KNOWN:
            raise PayloadNotKnown(
                f"the payload of {self.event_type!r} is a callable and was not evaluated yet; "
                "it is known after the flush"
            )
        return self._payload

    @property
    def key(self) -> str | None:
        """Events with the same key keep their order. A callable's is known after the flush."""
        if self._key is NOT_KNOWN:
            raise PayloadNotKnown(
                f"the key of {self.event_type!r} is a callable and was not evaluated yet; "
                "it is known after the flush"
            )
        return self._key

    @property
    def headers(self) -> Mapping[str, str | int]:
        """What was added besides the payload, and what ``event_context`` contributed. Read-only."""
        headers = self._headers
        if isinstance(headers, str):
            headers = decode(headers)
            if type(headers) is not dict:
                raise DecodeError("the stored headers are not an object")
            _set(self, "_headers", headers)
        return MappingProxyType(headers)

    @property
    def idempotency_key(self) -> str | None:
        """The key it was added with, stored in a header: an event without one pays nothing."""
        known: str | _NotKnown | None = getattr(self, "_idempotency_key", NOT_KNOWN)
        if known is not NOT_KNOWN:
            return known
        stored = self.headers.get(IDEMPOTENCY_KEY)
        return stored if isinstance(stored, str) else None

    @property
    def run_at(self) -> datetime | None:
        """Not before this time; None for an event without a schedule, or one added with ``delay``
        (the database computes that one's time)."""
        at = self._run_at
        return at if at is None or isinstance(at, datetime) else as_time(at)

    @property
    def created_at(self) -> datetime | None:
        """When it was written, by the database's clock; None on the producer's side."""
        at = self._created_at
        return at if at is None or isinstance(at, datetime) else as_time(at)

    @property
    def attempt(self) -> int:
        """Which attempt of this listener's handler this is, counted from 1."""
        return getattr(self, "_attempt", 1)

    @property
    def cancel_requested(self) -> bool:
        """In a queue's handler: whether ``outbox.cancel`` was called for this event. It may become
        true at any time; a handler that checks it returns or raises."""
        return getattr(self, "_cancel_requested", False)

    @property
    def result_ref(self) -> str | None:
        """The reference passed to ``leave_result``."""
        return getattr(self, "_result_ref", None)

    def leave_result(self, reference: str) -> None:
        """In a handler: record where the result is, for ``outbox.status`` to return.

        A reference (an address, a key) of 1 to 1000 bytes, not the result itself. It is stored when
        the event is done, together with the cursor; the last of several calls counts.
        """
        text = checked_text("reference", reference, most=MAX_REFERENCE_BYTES)
        if text is None:
            raise WrongArgument("reference is None: leave the call out", field="reference")
        _set(self, "_result_ref", text)
        left_results.add(self.event_type)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"an event can't be changed: {name}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"an event can't be changed: {name}")

    def __setstate__(self, state: tuple[None, dict[str, object]]) -> None:
        # Pickle sets slots through setattr, which is blocked here: an entity may be pickled with
        # the events recorded on it.
        for name, value in state[1].items():
            _set(self, name, value)

    def __repr__(self) -> str:
        # No payload, key or headers: a repr ends up in logs, and payloads hold personal data.
        return f"<Event {self.event_type} {self.event_id}>"


def as_time(seconds: float) -> datetime:
    """A stored time. Raises :class:`DecodeError` for one that Python does not know."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        raise DecodeError(f"a stored time ({seconds}) is outside Python's range") from None


def stored_text(event: Event[object]) -> str | None:
    """The payload as stored, if nobody has decoded it."""
    return event._text  # noqa: SLF001 - its own module


def now_known(event: Event[object], *, payload: object, key: str | None) -> None:
    """Fill in what was deferred. Called by the writer of the event, when it is written."""
    _set(event, "_payload", payload)
    _set(event, "_key", key)


def now_duplicate(event: Event[object], original: UUID | None) -> None:
    """Mark *event* as not written because *original* has its idempotency key; or undo that."""
    _set(event, "duplicate_of", original)
