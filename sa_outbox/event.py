"""The event: a fact, written once, in the transaction that made it true."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from datetime import time as time_of_day
from decimal import Decimal
from enum import Enum
from random import Random
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeAlias, TypedDict, TypeVar
from uuid import UUID

from .arguments import checked_text
from .errors import PayloadNotKnown, WrongArgument

if TYPE_CHECKING:
    from collections.abc import Sequence

P_co = TypeVar("P_co", covariant=True)

Scalar: TypeAlias = (
    str | float | bool | UUID | date | time_of_day | timedelta | Decimal | Enum | None
)
Json: TypeAlias = "Scalar | Sequence[object] | Mapping[str, object]"
"""What an untyped payload may be. What is inside is checked when it is added: a type checker
would otherwise refuse every dict of mixed values that is not written in place."""

Deferred: TypeAlias = Callable[[], P_co]
"""A value that is known only after the flush, such as a primary key the database gives."""


OnDuplicate: TypeAlias = Literal["skip", "raise"]
"""What becomes of an event whose idempotency key another one has: it is left out, or the flush
raises ``DuplicateEvent``."""


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
"""How the types of the outbox's own events begin; nobody else adds such."""
NOT_KNOWN: Final = _NotKnown.NOT_KNOWN
MAX_REFERENCE_BYTES: Final = 1000
_set, _new = object.__setattr__, object.__new__

left_results: set[str] = set()
"""Types of events for which a handler of this process has left a result: mostly none, and then
nobody has to look at each event."""


class _Fields(Generic[P_co]):
    """What an event holds, while it can be set: see ``stored_event``."""

    __slots__ = (
        "__weakref__",
        "_cancel_requested",
        "_headers",
        "_key",
        "_payload",
        "_result_ref",
        "_text",
        "created_at",
        "duplicate_of",
        "event_id",
        "event_type",
        "idempotency_key",
        "position",
        "priority",
        "run_at",
        "tenant",
    )

    event_id: UUID
    """Made by the producer (UUID version 7); the same for every listener and every attempt."""
    event_type: str
    tenant: str | None
    run_at: datetime | None
    """Not before this time; None for an event without a schedule, or one added with ``delay``
    (the database computes that one's time)."""
    priority: int
    idempotency_key: str | None
    position: int | None
    """The event's place in the log; None on the producer's side, where it is not known."""
    created_at: datetime | None
    """When it was written, by the database's clock; None on the producer's side."""
    duplicate_of: UUID | None
    """Known after the flush: the earlier event with the same idempotency key, because of which
    this one was not written."""
    _headers: Mapping[str, str | int]
    _payload: P_co | _NotKnown
    _key: str | _NotKnown | None
    # Not there until they are set: there is one event for each attempt, and few need them.
    _cancel_requested: bool
    _result_ref: str
    _text: str


class Event(_Fields[P_co]):
    """One event. The same class on both sides: what ``add_event`` returns, what a handler gets.

    It can't be changed: one event may be looked at by many listeners.
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
        _set(self, "event_type", event_type)
        _set(self, "_payload", payload)
        _set(self, "event_id", uuid7() if event_id is None else event_id)
        _set(self, "_key", key)
        _set(self, "tenant", tenant)
        _set(self, "_headers", {} if headers is None else headers)
        _set(self, "run_at", run_at)
        _set(self, "priority", priority)
        _set(self, "idempotency_key", idempotency_key)
        _set(self, "position", position)
        _set(self, "created_at", created_at)
        _set(self, "duplicate_of", None)

    @property
    def payload(self) -> P_co:
        """On the producer's side the object that was given; what is stored is its value then."""
        if self._payload is NOT_KNOWN:
            raise PayloadNotKnown(
                f"the payload of {self.event_type!r} is a callable and was not evaluated yet; "
                "it is known after the flush"
            )
        return self._payload

    @property
    def key(self) -> str | None:
        if self._key is NOT_KNOWN:
            raise PayloadNotKnown(
                f"the key of {self.event_type!r} is a callable and was not evaluated yet; "
                "it is known after the flush"
            )
        return self._key

    @property
    def headers(self) -> Mapping[str, str | int]:
        return MappingProxyType(self._headers)

    @property
    def cancel_requested(self) -> bool:
        """In the handler of a queue: whether ``outbox.cancel`` was called for this event. It may
        turn true at any time; a handler that minds returns, or raises."""
        return getattr(self, "_cancel_requested", False)

    @property
    def result_ref(self) -> str | None:
        """What ``leave_result`` was called with."""
        return getattr(self, "_result_ref", None)

    def leave_result(self, reference: str) -> None:
        """In a handler: say where the result is, for ``outbox.status`` to tell.

        A reference (an address, a key), 1 to 1000 bytes; not the result itself. It is stored if
        and when the event is done, with its cursor; of several calls the last one counts.
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
        # Pickle sets slots by setattr, which is closed: an entity may be pickled with the events
        # recorded on it.
        for name, value in state[1].items():
            _set(self, name, value)

    def __repr__(self) -> str:
        # No payload, key or headers: a repr ends in logs, and payloads hold people's data.
        return f"<Event {self.event_type} {self.event_id}>"


def stored_text(event: Event[object]) -> str | None:
    """The payload as it is stored, if nobody has looked into it."""
    return getattr(event, "_text", None)


def stored_event(
    event_type: str,
    payload: object,
    event_id: UUID,
    key: str | None,
    tenant: str | None,
    headers: Mapping[str, str | int],
    run_at: datetime | None,
    priority: int,
    position: int,
    created_at: datetime,
    unread: type[Event[object]] | None = None,
) -> Event[object]:
    """Make an event from a row of the log. ``Event(...)`` in a seventh of its time: its fields are
    set before it is an event, which can't be changed.

    With *unread*, it is one of this class, and *payload* is the stored text.
    """
    made: Any = _new(_Fields)
    made.event_type = event_type
    if unread is None:
        made._payload = payload  # noqa: SLF001 - its own
    else:
        made._text = payload  # noqa: SLF001 - its own
    made.event_id = event_id
    made._key = key  # noqa: SLF001 - its own
    made.tenant = tenant
    made._headers = headers  # noqa: SLF001 - its own
    made.run_at = run_at
    made.priority = priority
    made.idempotency_key = None
    made.position = position
    made.created_at = created_at
    made.duplicate_of = None
    made.__class__ = unread or Event
    return made  # type: ignore[no-any-return]  # a cast would be a call for each event


def now_known(event: Event[object], *, payload: object, key: str | None) -> None:
    """Fill in what was deferred. For the writer of the event, at the moment of writing."""
    _set(event, "_payload", payload)
    _set(event, "_key", key)


def now_duplicate(event: Event[object], original: UUID | None) -> None:
    """Say that *event* was not written, because *original* has its idempotency key; or take
    that back."""
    _set(event, "duplicate_of", original)


def now_cancel_requested(event: Event[object]) -> None:
    """Say that somebody wants the handler of *event* to give up. For the consumer."""
    _set(event, "_cancel_requested", True)  # noqa: FBT003 - the value


# Not os.urandom: a system call for each event. Not the module's own generator: programs seed that
# one, and two processes with one seed would make the same ids.
_random = Random()  # noqa: S311 - an id, not a secret
os.register_at_fork(after_in_child=_random.seed)


def uuid7() -> UUID:
    """A UUID of version 7: Unix milliseconds, 12 bits of the fraction, 62 random bits.

    Its order in time keeps index pages that hold it warm. Not a secret: it tells when.
    """
    milliseconds, fraction = divmod(time.time_ns(), 1_000_000)
    return UUID(
        int=(milliseconds & 0xFFFF_FFFF_FFFF) << 80
        | 0x7 << 76
        | (fraction * 4096 // 1_000_000) << 64
        | 0b10 << 62
        | _random.getrandbits(62)
    )
