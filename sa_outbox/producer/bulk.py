"""Bulk methods of a session attach no object: events recorded on entities would be left out
silently, so there is a warning."""

from __future__ import annotations

import warnings
from functools import wraps
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy.orm import Session

from .entity import SLOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_OBJECTS: Final = "bulk_save_objects"
_MAPPINGS: Final = ("bulk_insert_mappings", "bulk_update_mappings")
_WATCHED: Final = "_warns_of_recorded_events"


def watch_bulk_methods(cls: type[Session]) -> None:
    """Let the bulk methods of *cls* warn of recorded events. Not those of SQLAlchemy itself."""
    if cls is Session or hasattr(getattr(cls, _OBJECTS), _WATCHED):
        return
    setattr(cls, _OBJECTS, _watched_objects(getattr(cls, _OBJECTS)))
    for name in _MAPPINGS:
        setattr(cls, name, _watched_mappings(getattr(cls, name)))


def _watched_objects(method: Callable[..., None]) -> Callable[..., None]:
    @wraps(method)
    def watched(self: Session, objects: Iterable[Any], *rest: Any, **options: Any) -> None:
        objects = list(objects)
        _warn_of(_OBJECTS, [getattr(each, "__dict__", {}) for each in objects])
        method(self, objects, *rest, **options)

    setattr(watched, _WATCHED, True)
    return watched


def _watched_mappings(method: Callable[..., None]) -> Callable[..., None]:
    """For mappings that are the ``__dict__`` of entities: others can't have events."""

    @wraps(method)
    def watched(
        self: Session, mapper: Any, mappings: Iterable[Any], *rest: Any, **options: Any
    ) -> None:
        mappings = list(mappings)
        _warn_of(method.__name__, mappings)
        method(self, mapper, mappings, *rest, **options)

    return watched


def _warn_of(method: str, attributes: list[Any]) -> None:
    recorded = [name for each in attributes for name in _names(each)]
    if recorded:
        shown = ", ".join(sorted(set(recorded))[:5])
        warnings.warn(
            f"{method} does not collect the events recorded on entities: {len(recorded)} of them "
            f"({shown}) are not written, and stay with their objects. Use add_all(), or add the "
            "events to the session",
            RuntimeWarning,
            stacklevel=3,
        )


def _names(attributes: Any) -> list[str]:
    return [pending.event.event_type for pending in attributes.get(SLOT) or ()]
