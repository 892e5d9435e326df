"""An event waiting to be written: everything checked, everything but callables serialised."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from ..errors import InvalidEvent, WrongArgument
from ..event import tracing
from ..event.causation import handled, link_to_cause
from ..event.codec import encode, encode_plain
from ..event.context import fill_in
from ..event.event import NOT_KNOWN, Event, EventFields, now_duplicate, now_known
from ..event.ids import uuid7
from ..event.types import event_types
from ..event.validation import (
    IDEMPOTENCY_KEY,
    check_event_type,
    check_priority,
    checked_headers,
    checked_schedule,
    checked_text,
    is_refused_twice,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime, timedelta

    from sqlalchemy.orm import SessionTransaction

    from ..event.event import Deferred, OnDuplicate
    from ..event.types import EventType
    from ..settings import Limits

_new = object.__new__
_orders = itertools.count(1)
"""The order of adding, across all sessions; ``next`` is atomic."""


class Pending:
    """One event waiting to be written."""

    __slots__ = (
        "_fixed",
        "_key",
        "_payload",
        "dropped",
        "entity",
        "event",
        "idempotency_key",
        "order",
        "refused_twice",
        "scope",
        "size",
    )

    def __init__(
        self,
        event: Event[Any],
        fixed: str,
        payload: str | Deferred[object],
        key: str | Deferred[str | None] | None,
        entity: object,
        *,
        idempotency_key: str | None = None,
        refused_twice: bool = False,
    ) -> None:
        self.event: Event[Any] = event
        self.idempotency_key: str | None = idempotency_key
        self.refused_twice: bool = refused_twice
        self.entity: object = entity
        self.order: int = next(_orders)
        self.scope: SessionTransaction | None = None
        self.dropped: bool = False
        self._fixed = fixed
        self._payload = payload
        self._key = key
        self.size: int = len(fixed) + (len(payload) if isinstance(payload, str) else 0)

    @property
    def is_deferred(self) -> bool:
        """Whether it has a value that only the flush makes known."""
        return not isinstance(self._payload, str) or callable(self._key)

    def row(self, limits: Limits) -> str:
        """The event as a JSON object for ``insert_events``; evaluates deferred values."""
        payload, key = self._payload, self._key
        # Not ``is_deferred``: this is asked for each event.
        if type(payload) is str and not callable(key):
            return f'{self._fixed},"payload":{payload}}}'
        value = None
        if callable(key):
            key = checked_text("key", key())
        if callable(payload):
            value = payload()
            payload = _encoded(value, limits)
        else:
            value = self.event.payload
        now_known(self.event, payload=value, key=key)
        quoted = "null" if key is None else encode_plain(key)
        return f'{self._fixed},"key":{quoted},"payload":{payload}}}'

    def again(self) -> Pending:
        """A copy of this event, for when its entity is added again in another transaction."""
        fresh = Pending(
            self.event,
            self._fixed,
            self._payload,
            self._key,
            self.entity,
            idempotency_key=self.idempotency_key,
            refused_twice=self.refused_twice,
        )
        fresh.order = self.order
        now_duplicate(self.event, None)  # the event it duplicated may be gone by then
        return fresh


def make_pending(
    event: object,
    payload: object,
    limits: Limits,
    *,
    key: str | Deferred[str | None] | None = None,
    tenant: str | None = None,
    headers: Mapping[str, str] | None = None,
    run_at: datetime | None = None,
    delay: timedelta | None = None,
    priority: int = 0,
    idempotency_key: str | None = None,
    on_duplicate: OnDuplicate = "skip",
    entity: object = None,
    traced: bool = True,
) -> Pending:
    """Check everything and serialise it now; only callables are left for the flush.

    *traced*: the event is being added right now, and gets a span if tracing is on.
    """
    name, version, value, deferred = _named(event, payload)
    if not callable(key):
        key = checked_text("key", key)
    tenant = checked_text("tenant", tenant)
    idempotency_key = checked_text("idempotency_key", idempotency_key)
    refused_twice = is_refused_twice(on_duplicate, idempotency_key)
    run_at = checked_schedule(run_at, delay)
    check_priority(priority)
    all_headers = _headers(headers, version)
    if idempotency_key is not None:
        all_headers[IDEMPOTENCY_KEY] = idempotency_key
    cause = handled.get()
    tenant = fill_in(name, tenant, all_headers, cause)
    if cause is not None:
        link_to_cause(name, all_headers, limits.max_causation_depth, limits.max_caused_events)
    encoded = value if deferred else _encoded(value, limits)
    made = _made_event(
        name,
        NOT_KNOWN if deferred else value,
        key=NOT_KNOWN if callable(key) else key,
        tenant=tenant,
        headers=all_headers,
        run_at=run_at,
        priority=priority,
        idempotency_key=idempotency_key,
    )
    if tracing.present is not None and traced:
        tracing.present.added(made, all_headers)
    known = None if callable(key) or deferred else key
    fixed = _written(made, known, all_headers, run_at, delay, limits)
    return Pending(
        made,
        fixed,
        encoded,
        key,
        entity,
        idempotency_key=idempotency_key,
        refused_twice=refused_twice,
    )


def _made_event(
    event_type: str,
    payload: object,
    *,
    key: object,
    tenant: str | None,
    headers: Mapping[str, str | int],
    run_at: datetime | None,
    priority: int,
    idempotency_key: str | None,
) -> Event[Any]:
    """``Event(...)`` in half the time: set before the object becomes an event, which is
    immutable."""
    made: Any = _new(EventFields)
    made.event_type = event_type
    made.event_id = uuid7()
    made.tenant = tenant
    made.priority = priority
    made._idempotency_key = idempotency_key  # noqa: SLF001
    made._payload = payload  # noqa: SLF001 - an event's own attributes
    made._key = key  # noqa: SLF001
    made._headers = headers  # noqa: SLF001
    made._run_at = run_at  # noqa: SLF001
    made._text = made.position = made._created_at = made.duplicate_of = None  # noqa: SLF001
    made.__class__ = Event
    event: Event[Any] = made
    return event


def _written(
    event: Event[Any],
    key: str | None,
    headers: dict[str, str | int],
    run_at: datetime | None,
    delay: timedelta | None,
    limits: Limits,
) -> str:
    """The beginning of the event's row: everything known before the flush except its payload."""
    # Built by hand: uuid and type need no escaping, and most events have nothing else.
    fixed = f'{{"event_id":"{event.event_id.hex}","event_type":"{event.event_type}"'
    if key is not None:
        fixed += f',"key":{encode_plain(key)}'
    if event.tenant is not None:
        fixed += f',"tenant":{encode_plain(event.tenant)}'
    if headers:
        size = limits.max_header_bytes
        fixed += f',"headers":{encode(headers, max_bytes=size, max_depth=2, field="headers")}'
    if run_at is not None:
        fixed += f',"run_at":"{run_at.isoformat()}"'
    if delay is not None:
        fixed += f',"delay":{delay.total_seconds()!r}'
    if event.priority:
        fixed += f',"priority":{event.priority}'
    return fixed


def _named(event: object, payload: object) -> tuple[str, int | None, Any, bool]:
    """The event type's name, its version if registered, the payload, and whether it is deferred."""
    if isinstance(event, str):
        event = str.__str__(event)  # for a subclass (an enum), the text itself, and that is checked
        check_event_type(event)
        deferred = callable(payload) and not isinstance(payload, type)
        version = event_types.version_of(event) if event_types.knows(event) else None
        return event, version, payload, deferred
    known: EventType[Any]
    if isinstance(event, type):
        known = event_types.of(event)
        if type(payload) is event:
            return known.name, known.version, payload, False
        if not callable(payload):
            raise _not_one_of(event, payload)
        return known.name, known.version, _checked(event, payload), True
    if isinstance(event, Event):
        raise WrongArgument("this event was already added", field="event_type")
    if payload is not None:
        raise InvalidEvent(
            "an event object is its own payload: pass the object alone, or a name and a payload",
            field="payload",
        )
    known = event_types.of(type(event))
    return known.name, known.version, event, False


def _checked(cls: type, make: Callable[[], object]) -> Callable[[], object]:
    def made() -> object:
        value = make()
        if type(value) is not cls:
            raise _not_one_of(cls, value)
        return value

    return made


def _not_one_of(cls: type, value: object) -> WrongArgument:
    return WrongArgument(
        f"the payload of {cls.__qualname__} must be one of its objects, or a callable that makes "
        f"one; got {type(value).__name__}",
        field="payload",
    )


def _headers(headers: Mapping[str, str] | None, version: int | None) -> dict[str, str | int]:
    merged: dict[str, str | int] = {}
    if headers is not None:
        merged.update(checked_headers(headers))
    if version is not None:
        merged["version"] = version
    return merged


def _encoded(value: object, limits: Limits) -> str:
    return encode(value, max_bytes=limits.max_payload_bytes, max_depth=limits.max_payload_depth)
