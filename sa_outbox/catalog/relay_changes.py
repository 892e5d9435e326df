"""What changed for the receivers of relays: they see neither classes nor versions of the program,
only where messages arrive and in which envelope."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .change import Change
from .relays import ABOUT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .committed import Committed

_FIX = "keep the relay as it was, and add another beside it until its receivers have moved"


def relay_changes(old: Committed, new: Committed) -> Iterator[Change]:
    for name in sorted(old.channels.keys() | new.channels.keys()):
        relay = (name,)
        if name not in old.channels:
            yield Change(name, "new relay")
        elif name not in new.channels:
            yield Change(name, "the relay is gone", "receivers", relay, _FIX)
        else:
            for what in _moves(old.channels[name], new.channels[name]):
                yield Change(name, what, "receivers", relay, _FIX)
            yield from _types(name, old, new)


def _moves(was: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    for what, before, after in (
        ("address", was.get("address"), now.get("address")),
        ("envelope", was[ABOUT].get("envelope"), now[ABOUT].get("envelope")),
        ("protocol", was[ABOUT].get("protocol"), now[ABOUT].get("protocol")),
    ):
        if before != after:
            yield f"its {what} was {before or 'decided by a function'} and is " + (
                after or "decided by a function"
            )


def _types(name: str, old: Committed, new: Committed) -> Iterator[Change]:
    was, now = old.relays[name], new.relays[name]
    for event_type in sorted(old.types):
        if was.wants(event_type) and not now.wants(event_type):
            what = f"it no longer forwards {event_type}"
            yield Change(name, what, "receivers", (name,), f"add {event_type} to its on=")
