"""How an event becomes a message: its payload with headers around it, or a CloudEvent.

Plain: the payload as JSON, everything else in headers. CloudEvents 1.0, binary: likewise, with the
names of that specification; structured: one JSON document with everything.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

import msgspec

from sa_outbox.errors import ConfigError
from sa_outbox.event.codec import encode_loaded, encode_plain
from sa_outbox.event.event import stored_text

from .message import JSON, Message

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sa_outbox.event.event import Event

STRUCTURED = "application/cloudevents+json"
MAX_SOURCE = 2000
_PASSED_ON = (
    "version",
    "request_id",
    "correlation_id",
    "causation_id",
    "project_id",
    "actor_type",
    "actor_id",
    "traceparent",
    "tracestate",
)
"""Headers of an event that every envelope includes; the user's own are added to them."""


class Envelope(Protocol):
    """What becomes of an event when a relay forwards it: its body, headers and attributes. Write
    one of your own for a format that your receivers have already."""

    def wrap(self, event: Event[Any], destination: str, *, epoch: int, prefix: str) -> Message:
        """The message for *event*. *epoch* is for :func:`sequence`, *prefix* is the relay's
        ``attribute_prefix``."""
        ...


_WRAPPING: ContextVar[tuple[int, str]] = ContextVar("sa_outbox_wrapping", default=(0, "ce-"))


@contextmanager
def wrapping(epoch: int, prefix: str) -> Iterator[None]:
    """For a relay's ``map``, whose own ``wrap`` knows neither: these are what it takes."""
    token = _WRAPPING.set((epoch, prefix))
    try:
        yield
    finally:
        _WRAPPING.reset(token)


def sequence(epoch: int, position: int | None) -> str:
    """Grows with the position in the log, also when compared as text; after a restore from a backup
    ``sa-outbox adopt`` starts a new epoch, because ids that were seen before are assigned again."""
    return f"{epoch:010d}-{position or 0:019d}"


def _body(event: Event[Any]) -> bytes:
    """The payload as stored; encoded again if it was decoded, perhaps to an object of a
    class; or without a database."""
    text = stored_text(event)
    return (encode_loaded(event.payload) if text is None else text).encode()


@dataclass(frozen=True, slots=True)
class Plain:
    """The payload as JSON; ``event_id``, ``event_type`` and the rest are headers."""

    def wrap(
        self,
        event: Event[Any],
        destination: str,
        *,
        epoch: int | None = None,
        prefix: str | None = None,  # noqa: ARG002 - of CloudEvents
    ) -> Message:
        """The message for *event*; in a relay's ``map``, without *epoch* and *prefix*."""
        epoch = _WRAPPING.get()[0] if epoch is None else epoch
        headers = {
            "event_id": str(event.event_id),
            "event_type": event.event_type,
            "sequence": sequence(epoch, event.position),
        }
        if event.created_at is not None:
            headers["created_at"] = event.created_at.isoformat()
        if event.tenant is not None:
            headers["tenant"] = event.tenant
        if (key := event.key) is not None:
            headers["key"] = key
        for name, value in event.headers.items():
            headers.setdefault(name, str(value))
        return Message(event, destination, _body(event), key, headers)


@dataclass(frozen=True, slots=True)
class CloudEvents:
    """CloudEvents 1.0. *source* is a URI reference that identifies where the events come from."""

    source: str
    mode: Literal["binary", "structured"] = "binary"

    def __post_init__(self) -> None:
        source: object = self.source
        if not isinstance(source, str) or not source or len(source) > MAX_SOURCE:
            raise ConfigError(f"source of CloudEvents must be a URI reference: {source!r}")
        if any(ord(each) < 0x21 or each in '<>"{}|\\^`' or ord(each) > 0x7E for each in source):
            raise ConfigError(f"source of CloudEvents must be a URI reference: {source!r}")
        if self.mode not in ("binary", "structured"):
            raise ConfigError(f'mode of CloudEvents must be "binary" or "structured": {self.mode}')

    def wrap(
        self,
        event: Event[Any],
        destination: str,
        *,
        epoch: int | None = None,
        prefix: str | None = None,
    ) -> Message:
        """The message for *event*; in a relay's ``map``, without *epoch* and *prefix*."""
        known = _WRAPPING.get()
        epoch = known[0] if epoch is None else epoch
        prefix = known[1] if prefix is None else prefix
        attributes = self._attributes(event, epoch)
        own = {name: str(value) for name, value in event.headers.items() if name not in _PASSED_ON}
        if self.mode == "structured":
            document = {**attributes, "data": msgspec.Raw(_body(event))}
            body = encode_plain(document).encode()
            return Message(event, destination, body, event.key, own, STRUCTURED)
        headers = {f"{prefix}{name}": value for name, value in attributes.items()}
        del headers[f"{prefix}datacontenttype"]  # the content type says so, in this mode
        for name in ("traceparent", "tracestate"):
            if name in attributes:  # where programs without CloudEvents look for it
                headers[name] = attributes[name]
        return Message(event, destination, _body(event), event.key, {**own, **headers})

    def _attributes(self, event: Event[Any], epoch: int) -> dict[str, str]:
        """Names are lower-case letters and digits: the specification allows nothing else."""
        found = {
            "specversion": "1.0",
            "id": str(event.event_id),
            "source": self.source,
            "type": event.event_type,
            "datacontenttype": JSON,
            "sequence": sequence(epoch, event.position),
        }
        if event.created_at is not None:
            found["time"] = event.created_at.isoformat()
        if event.key is not None:
            found["subject"] = found["partitionkey"] = event.key
        if event.tenant is not None:
            found["tenant"] = event.tenant
        for name in _PASSED_ON:
            value = event.headers.get(name)
            if value is not None:
                found["schemaversion" if name == "version" else name.replace("_", "")] = str(value)
        return found
