"""The channels that relays send to. No address of a server is among them, and no URL: one may hold
a password."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from ..relay.envelope import STRUCTURED, CloudEvents, Plain
from .contents import classes_read
from .dialect import PLACE, component_name
from .headers import cloud_document, headers_of, in_http

if TYPE_CHECKING:
    from ..declare.listener import Listener
    from ..relay.forward import Forward
    from .contents import Entry
    from .dialect import Schema

ABOUT: Final = "x-sa-outbox"
"""The extension in which the document has what AsyncAPI knows no word for."""
_FIELD = re.compile(r"\{(event_type|key|tenant)\}")


def channel_of(listener: Listener, forward: Forward, entries: list[Entry]) -> Schema:
    protocol = protocol_of(forward)
    address = address_of(forward)
    made: Schema = {
        "address": address,
        "title": f"Relay {listener.name}",
        "messages": {component_name(each.name): _message(forward, each) for each in entries},
        ABOUT: {"relay": listener.name, "protocol": protocol, "envelope": envelope_of(forward)},
    }
    fields = sorted(set(_FIELD.findall(address or "")))
    if fields:
        made["parameters"] = {each: {"description": f"The event's {each}."} for each in fields}
    if protocol is not None:
        made["bindings"] = {protocol: _channel_binding(protocol, forward, address)}
    return made


def operation_of(listener: Listener, forward: Forward, entries: list[Entry]) -> Schema:
    channel = f"#/channels/relay.{listener.name}"
    made: Schema = {
        "action": "send",
        "channel": {"$ref": channel},
        "messages": [{"$ref": f"{channel}/messages/{component_name(e.name)}"} for e in entries],
        ABOUT: {
            "relay": listener.name,
            "on": list(listener.on),
            "classes": classes_read(listener, entries),
        },
    }
    if protocol_of(forward) == "http":
        made["bindings"] = {"http": {"method": "POST", "bindingVersion": "0.3.0"}}
    return made


def protocol_of(forward: Forward) -> str | None:
    """As AsyncAPI calls it; None for a relay of the program's own that does not say."""
    found = getattr(forward.relay, "protocol", None)
    return found if isinstance(found, str) else None


def address_of(forward: Forward) -> str | None:
    """Where its messages go; None: it is decided for each event, or is a URL."""
    to = forward.to
    return None if to is None or "://" in to or protocol_of(forward) == "http" else to


def envelope_of(forward: Forward) -> str:
    envelope = forward.envelope
    if envelope is None:
        return "map"
    if isinstance(envelope, CloudEvents):
        return f"cloudevents-{envelope.mode}"
    return "plain" if isinstance(envelope, Plain) else type(envelope).__name__


def _message(forward: Forward, entry: Entry) -> Schema:
    """In the relay's envelope; what a function of the program makes of it is not known."""
    made: Schema = {"name": entry.name}
    payload: Any = {"$ref": PLACE + component_name(entry.name)}
    headers = headers_sent(forward)
    if headers is not None:
        made |= {"payload": payload, "headers": {"$ref": PLACE + headers[0]}}
        made["correlationId"] = {"location": f"$message.header#/{_correlation(forward)}"}
    elif envelope_of(forward) == "cloudevents-structured":
        made |= {"payload": cloud_document(payload), "contentType": STRUCTURED}
        made["correlationId"] = {"location": "$message.payload#/correlationid"}
    if protocol_of(forward) == "kafka":
        made["bindings"] = {"kafka": {"key": {"type": "string"}, "bindingVersion": "0.5.0"}}
    return made


def headers_sent(forward: Forward) -> tuple[str, Schema] | None:
    """The headers of its messages, with their name under ``components``."""
    over_http = protocol_of(forward) == "http"
    return headers_of(envelope_of(forward), forward.relay.attribute_prefix, over_http=over_http)


def _correlation(forward: Forward) -> str:
    if envelope_of(forward) != "plain":
        return f"{forward.relay.attribute_prefix}correlationid"
    return in_http("correlation_id") if protocol_of(forward) == "http" else "correlation_id"


def _channel_binding(protocol: str, forward: Forward, address: str | None) -> Schema:
    if protocol == "kafka" and address is not None and not _FIELD.search(address):
        return {"topic": address, "bindingVersion": "0.5.0"}
    exchange = getattr(forward.relay, "exchange", None)
    if protocol == "amqp" and isinstance(exchange, str):
        if exchange:
            named = {"is": "routingKey", "exchange": {"name": exchange}}
        else:
            named = {"is": "queue", "queue": {"name": address}} if address else {"is": "queue"}
        return {**named, "bindingVersion": "0.3.0"}
    return {}
