"""The ids of a request, as the context of its events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import InvalidEvent
from ..event.context import event_context

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager


def context_of(ids: Mapping[str, str]) -> AbstractContextManager[None]:
    """An event context of *ids*, without what can't be stored: the client has chosen them."""
    values: dict[str, Any] = {name: text for name, text in ids.items() if _is_storable(name, text)}
    return event_context(**values)


def _is_storable(name: str, text: str) -> bool:
    values: dict[str, Any] = {name: text}
    try:
        event_context(**values)
    except InvalidEvent:
        return False
    return True
