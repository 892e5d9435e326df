"""Declaring listeners: what ``@outbox.listener(...)`` does with its arguments."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ..errors import ConfigError
from ..policy.checks import did_you_mean
from .handler import Handler, inspect_handler
from .listener import NONE_IS_NO_LIMIT, Listener
from .type_patterns import patterns

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from ..settings import Settings
    from .type_patterns import On

H = TypeVar("H", bound=Handler)

MAX_NAME = 100
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:\-]*")


class Listeners:
    """The listeners of one outbox, by name."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings
        self._by_name: dict[str, Listener] = {}

    def __iter__(self) -> Iterator[Listener]:
        return iter(tuple(self._by_name.values()))

    def __len__(self) -> int:
        return len(self._by_name)

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __getitem__(self, name: str) -> Listener:
        return self._by_name[name]

    @property
    def filters(self) -> list[str]:
        """Every filter of a listener, as statements take them."""
        return sorted({each.payload_filter for each in self if each.payload_filter is not None})

    def add(self, listener: Listener) -> None:
        if listener.name in self._by_name:
            raise ConfigError(
                f"there is a listener {listener.name!r} already; a name is one cursor, so it "
                "can have one handler"
            )
        self._by_name[listener.name] = listener

    def replace(self, listener: Listener) -> None:
        """The queue of this name has another handler."""
        self._by_name[listener.name] = listener


_INSTEAD: Final = {("queue", "on"): '; write outbox.queue("exports").on("export.*")'}
"""What to write instead of an argument that a call does not take."""


def given_options(
    call: str, options: Mapping[str, object], known: Collection[str]
) -> dict[str, Any]:
    """The *options* that have a value. Raises TypeError, as any call does, for an argument that is
    none of *known*."""
    for name in options:
        if name not in known:
            hint = _INSTEAD.get((call, name)) or did_you_mean(name, known)
            raise TypeError(f"{call}() got an unexpected keyword argument {name!r}{hint}")
    return {
        name: value
        for name, value in options.items()
        if value is not None or name in NONE_IS_NO_LIMIT
    }


def declare(
    name: str,
    on: On | None,
    handler: Handler,
    options: dict[str, Any],
    settings: Settings | None = None,
) -> Listener:
    """Make a listener from the arguments of ``@outbox.listener`` and its outbox's settings."""
    check_name(name)
    if on is None:
        call = inspect_handler(name, handler)
        if call.payload is None or not call.payload.classes:
            raise ConfigError(
                f"listener {name!r} needs on=: event types, or an argument annotated as "
                "Event[SomeEventType]"
            )
        on = call.payload.classes
    if settings is not None and settings.categories:
        options = {"categories": settings.category_by_type, **options}
    listener = Listener(name=name, handler=handler, on=patterns(name, on), **options)
    if settings is not None and settings.tenant_setting is not None:
        _check_batch(listener)
    return listener


def _check_batch(listener: Listener) -> None:
    if listener.call.batch and listener.call.session != "none":
        raise ConfigError(
            f"listener {listener.name!r} takes batches in a session, and the outbox has a "
            "tenant_setting: a batch may be of several tenants, a transaction has one. Take one "
            "event at a time, or no session"
        )


def decorator(
    name: str, on: On | None, options: dict[str, Any], listeners: Listeners
) -> Callable[[H], H]:
    def decorate(handler: H) -> H:
        listeners.add(declare(name, on, handler, options, listeners.settings))
        return handler

    check_name(name)
    return decorate


def check_name(name: str) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > MAX_NAME:
        raise ConfigError(
            f"a listener's name has up to {MAX_NAME} letters, digits and _ . : - ; got {name!r}"
        )
