"""The catalogue as a document: AsyncAPI 3, and JSON Schema alone."""

from __future__ import annotations

import inspect
import json
from typing import TYPE_CHECKING, Any, Final

from ..event.types import event_types
from .contents import Contents, Entry, classes_read, contents_of
from .dialect import PLACE, component_name
from .headers import HEADERS, plain_headers
from .relays import ABOUT, channel_of, headers_sent, operation_of

if TYPE_CHECKING:
    from ..declare.listener import Listener
    from ..event.types import EventTypes
    from ..outbox import Outbox
    from .dialect import Schema

LOG: Final = "#/channels/log"


def asyncapi(outbox: Outbox, *, title: str | None = None, version: str = "1.0.0") -> dict[str, Any]:
    """The events of *outbox*, and who reads them, as an AsyncAPI 3.0 document.

    It has every class that the process has registered, so import the modules that define events
    first. Its order is fixed: written with sorted keys, it is the same text each time. *title* is
    by default the name of the outbox's table; *version* is that of the document's own API, for
    whom it concerns. Raises :class:`ConfigError` for a class that has no JSON Schema.
    """
    return described(contents_of(outbox), title=title, version=version)


def json_schema(outbox: Outbox) -> dict[str, Any]:
    """The payloads alone, as one JSON Schema (draft 7) with a definition for each event type."""
    return schemas(contents_of(outbox))


def as_text(document: dict[str, Any]) -> str:
    """For a file: sorted, so that differences are small."""
    return json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def described(contents: Contents, *, title: str | None, version: str) -> Schema:
    log: Schema = {
        "address": contents.log,
        "title": "The log",
        "description": "The table that holds the events of this outbox, in order.",
        "messages": {
            component_name(each.name): {
                "$ref": f"#/components/messages/{component_name(each.name)}"
            }
            for each in contents.entries
        },
        ABOUT: {"log": contents.log},
    }
    relays = {
        f"relay.{each.name}": channel_of(each, forward, contents.read_by(each))
        for each, forward in contents.relays
    }
    return {
        "asyncapi": "3.0.0",
        "info": {"title": contents.log if title is None else title, "version": version},
        "defaultContentType": "application/json",
        "channels": {"log": log, **relays},
        "operations": _operations(contents),
        "components": {
            "messages": {component_name(each.name): _message(each) for each in contents.entries},
            "schemas": {
                HEADERS: plain_headers(),
                **dict(filter(None, (headers_sent(forward) for _, forward in contents.relays))),
                **{
                    name: each for entry in contents.entries for name, each in entry.reading.items()
                },
            },
        },
    }


def schemas(contents: Contents) -> Schema:
    found = {name: each for entry in contents.entries for name, each in entry.reading.items()}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": contents.log,
        "definitions": _moved(found),
    }


def _operations(contents: Contents) -> Schema:
    found: Schema = {}
    for entry in contents.entries:
        if entry.payload_class is not None:
            found[f"add.{entry.name}"] = _operation("send", [entry], {"adds": entry.name})
    for cron in contents.crons:
        about = {"cron": cron.name, "expression": cron.cron.expression}
        about |= {"time_zone": cron.cron.time_zone, "missed": cron.missed}
        entries = [each for each in contents.entries if each.name == cron.event_type]
        found[f"cron.{cron.name}"] = _operation("send", entries, about)
    for listener in contents.listeners:
        entries = contents.read_by(listener)
        made = _operation("receive", entries, _about(listener, entries))
        summary = _summary(listener)
        found[f"listener.{listener.name}"] = made | ({"summary": summary} if summary else {})
    for listener, forward in contents.relays:
        entries = contents.read_by(listener)
        found[f"relay.{listener.name}"] = operation_of(listener, forward, entries)
    return found


def _operation(action: str, entries: list[Entry], about: Schema) -> Schema:
    references = [{"$ref": f"{LOG}/messages/{component_name(each.name)}"} for each in entries]
    return {"action": action, "channel": {"$ref": LOG}, "messages": references, ABOUT: about}


def _about(listener: Listener, entries: list[Entry]) -> Schema:
    found: Schema = {"listener": listener.name, "on": list(listener.on), "order": listener.order}
    found["classes"] = classes_read(listener, entries)
    if listener.where is not None:
        found["where"] = json.loads(listener.payload_filter or "{}")
    return found


def _summary(listener: Listener) -> str | None:
    """The first line of the handler's docstring."""
    if listener.members:
        return None
    text = inspect.cleandoc(getattr(listener.handler, "__doc__", None) or "")
    return text.partition("\n")[0] or None


def _message(entry: Entry) -> Schema:
    made: Schema = {
        "name": entry.name,
        "payload": {"$ref": PLACE + component_name(entry.name)},
        "headers": {"$ref": PLACE + HEADERS},
        "correlationId": {"location": "$message.header#/correlation_id"},
        ABOUT: {"version": entry.version, "upcasters": list(entry.upcasters),
                "typed": entry.payload_class is not None},
    }  # fmt: skip
    if entry.payload_class is not None:
        made["title"] = entry.payload_class.__qualname__
    return made


def _moved(node: Any) -> Any:
    """With references to the definitions of this document."""
    if isinstance(node, dict):
        return {
            name: each.replace(PLACE, "#/definitions/")
            if name == "$ref" and isinstance(each, str)
            else _moved(each)
            for name, each in node.items()
        }
    return [_moved(each) for each in node] if isinstance(node, list) else node


def document_of(outbox: Outbox, types: EventTypes = event_types) -> Schema:
    """For tests: with event types of their own."""
    return described(contents_of(outbox, types), title=None, version="1.0.0")
