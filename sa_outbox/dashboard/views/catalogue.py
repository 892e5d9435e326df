"""The catalogue: a table of all event types, and a page of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .. import html as h
from .dead_letter_actions import notice
from .layout import Frame, heading, panel
from .listeners import address_of
from .parts import Column, count, facts, query, table, value

if TYPE_CHECKING:
    from ..catalogue import Catalogue, Field, Reader
    from ..html import Child

PATH: Final = "/catalogue"
_COLUMNS: Final = (
    Column("Event type"),
    Column("Version", numeric=True),
    Column("Fields", numeric=True),
    Column("Read by"),
    Column("Relayed by"),
)
_FIELDS: Final = (
    Column("Field"),
    Column("Type"),
    Column("Required"),
    Column("Description", wide=True),
)
_READERS: Final = (Column("Listener"), Column("Gets"))
_RELAYS: Final = (Column("Relay"), Column("Sends to"))
_NONE: Final = (
    "This dashboard knows no program. Start it with yours (sa-outbox dashboard shop.app:outbox), or"
    " with a catalogue that sa-outbox catalog has written (--catalogue asyncapi.json)."
)
_OPEN: Final = "Any JSON: no class is registered for this event type."


def catalogue_page(frame: Frame, found: Catalogue, *, committed: bool) -> str:
    under = "From the committed file." if committed else "Of the program that this dashboard knows."
    rows = [_row(frame, found, name) for name, _ in found.types]
    return frame.page(
        "Catalogue",
        heading("Catalogue", under=under),
        panel("Event types", table("Event types", _COLUMNS, rows, empty=_NONE)),
        at=PATH,
    )


def unreadable_page(frame: Frame, why: str) -> str:
    return frame.page("Catalogue", heading("Catalogue"), notice(why, "bad"), at=PATH)


def event_type_page(frame: Frame, found: Catalogue, name: str) -> str:
    about = found.type_of(name)
    version = 1 if about is None else about.version
    upcast = [] if about is None else [each for each in about.readable if each != version]
    events = h.a("Events of this type", href=frame.url(query("/events", {"type": name})))
    title = found.root(name).get("title")
    return frame.page(
        name,
        h.nav(h.a("Catalogue", href=frame.url(PATH)), aria_label="Back", class_="crumbs"),
        heading(value(name), events),
        facts(
            ("Version", str(version)),
            ("Also read", ", ".join(map(str, upcast)) or "no older version"),
            ("Class", value(title)),
        ),
        panel(
            "Payload",
            table("Payload", _FIELDS, map(_field, found.fields(name)), empty=_empty(found, name)),
        ),
        panel(
            "Read by",
            table(
                "Listeners",
                _READERS,
                [_reader(frame, each) for each in found.listeners(name)],
                empty="No listener reads it.",
            ),
        ),
        panel(
            "Relayed by",
            table(
                "Relays",
                _RELAYS,
                [_relay(frame, each) for each in found.relays(name)],
                empty="No relay forwards it.",
            ),
        ),
        at=PATH,
    )


def _empty(found: Catalogue, name: str) -> str:
    about = found.type_of(name)
    return "It has no fields." if about is not None and about.typed else _OPEN


def _row(frame: Frame, found: Catalogue, name: str) -> list[Child]:
    about = found.type_of(name)
    is_typed = about is not None and about.typed
    return [
        h.a(value(name), href=frame.url(query(f"{PATH}/type", {"name": name}))),
        str(1 if about is None else about.version),
        count(len(found.fields(name))) if is_typed else "any JSON",
        _linked(frame, found.listeners(name)),
        _linked(frame, found.relays(name)),
    ]


def _linked(frame: Frame, readers: list[Reader]) -> Child:
    return [h.div(_link(frame, each)) for each in readers] or value(None)


def _link(frame: Frame, reader: Reader) -> Child:
    return h.a(value(reader.name), href=address_of(frame, reader.name))


def _field(field: Field) -> list[Child]:
    return [
        h.code(value(field.path)),
        value(field.type),
        "no" if field.is_optional else "yes",
        value(field.description or None),
    ]


def _reader(frame: Frame, reader: Reader) -> list[Child]:
    gets = "JSON" if reader.payload_class is None else h.code(value(reader.payload_class))
    return [_link(frame, reader), gets]


def _relay(frame: Frame, relay: Reader) -> list[Child]:
    address = "decided for each event, or a URL" if relay.address is None else value(relay.address)
    return [_link(frame, relay), address]
