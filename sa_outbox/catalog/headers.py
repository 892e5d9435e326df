"""What surrounds a payload: the headers of a message, plain or of CloudEvents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ..event.validation import ACTOR_TYPES

if TYPE_CHECKING:
    from .dialect import Schema

HEADERS: Final = "outbox.headers"
"""No event type is called that: the prefix is reserved."""
_ID: Final = {"type": "string", "format": "uuid"}
_TEXT: Final = {"type": "string"}
_TIME: Final = {"type": "string", "format": "date-time"}
_VERSION: Final = {
    "type": ["integer", "string"],
    "description": "Of the payload; 1 if it is missing. A number in the log, text in a message.",
}
_ALWAYS: Final[dict[str, Any]] = {
    "event_id": {**_ID, "description": "By which a receiver recognises what it has had before."},
    "event_type": _TEXT,
    "sequence": {**_TEXT, "description": "Grows with the position in the log."},
}
_SOMETIMES: Final[dict[str, Any]] = {
    "created_at": _TIME,
    "key": {**_TEXT, "description": "Events of one key are in order."},
    "tenant": _TEXT,
    "version": _VERSION,
    "idempotency_key": _TEXT,
    "correlation_id": _TEXT,
    "causation_id": {**_TEXT, "description": "The event whose handler added this one."},
    "request_id": _TEXT,
    "project_id": _TEXT,
    "actor_type": {"type": "string", "enum": sorted(ACTOR_TYPES)},
    "actor_id": _TEXT,
    "traceparent": _TEXT,
    "tracestate": _TEXT,
}
_CLOUD_ALWAYS: Final[dict[str, Any]] = {
    "id": _ID,
    "source": _TEXT,
    "specversion": {"type": "string", "enum": ["1.0"]},
    "type": _TEXT,
    "sequence": _TEXT,
}
_CLOUD_SOMETIMES: Final[dict[str, Any]] = {
    "time": _TIME,
    "subject": _TEXT,
    "partitionkey": _TEXT,
    "schemaversion": _TEXT,
    **{name.replace("_", ""): _TEXT for name in (
        "tenant", "correlation_id", "causation_id", "request_id", "project_id", "actor_type",
        "actor_id", "traceparent", "tracestate")},
}  # fmt: skip


def plain_headers(*, over_http: bool = False) -> Schema:
    """As ``Plain()`` sends them, and as a handler finds them on its event."""
    return _described(_ALWAYS, _SOMETIMES, in_http if over_http else str)


def cloud_headers(prefix: str) -> Schema:
    """As ``CloudEvents(...)`` sends them."""
    return _described(_CLOUD_ALWAYS, _CLOUD_SOMETIMES, lambda name: prefix + name)


def headers_of(envelope: str, prefix: str, *, over_http: bool) -> tuple[str, Schema] | None:
    """Those of a relay's messages, with their name under ``components``; None: not known."""
    if envelope == "plain":
        return (f"{HEADERS}.http" if over_http else HEADERS), plain_headers(over_http=over_http)
    if envelope == "cloudevents-binary":
        return f"outbox.cloudevents.{prefix}", cloud_headers(prefix)
    return None


def cloud_document(payload: Schema) -> Schema:
    """As ``CloudEvents(..., mode="structured")`` sends the whole event."""
    made = _described(_CLOUD_ALWAYS, _CLOUD_SOMETIMES, str)
    made["properties"] |= {"data": payload, "datacontenttype": _TEXT}
    made["required"] = sorted([*made["required"], "data", "datacontenttype"])
    return made


def in_http(name: str) -> str:
    """Webhooks have hyphens: some servers drop names with underscores."""
    return name.lower().replace("_", "-")


def _described(always: dict[str, Any], sometimes: dict[str, Any], named: Any) -> Schema:
    return {
        "type": "object",
        "properties": {named(name): each for name, each in {**always, **sometimes}.items()},
        "required": sorted(named(name) for name in always),
        "additionalProperties": {"type": "string"},
    }
