"""Which payload an annotation asks for: ``Event[OrderPlaced]``, ``Event[OrderPlaced | OrderPaid]``.

An event's payload is JSON. It becomes an object only for a handler whose annotation names the
class: a class that one part of a program registers changes nothing for the listeners of another.
"""

from __future__ import annotations

import re
import types
import typing
from dataclasses import dataclass
from typing import Any, Final, ForwardRef, Union

from .objects import has_fields

_JSON: Final[tuple[object, ...]] = (Any, object, dict)
_NAME = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True)
class Wanted:
    """The classes that an annotation names."""

    classes: tuple[type, ...] = ()
    names: frozenset[str] = frozenset()
    """Of classes that can't be resolved at run time: imported for type checkers only."""
    otherwise: Any = None
    """What the payload of a type that is registered for none of *classes* is converted to; None: it
    stays JSON."""

    def form_of(self, registered: type | None) -> Any:
        """The class to build from a payload whose type is *registered*; None: it stays JSON."""
        named = registered is not None and (
            registered.__name__ in self.names or _is_one_of(registered, self.classes)
        )
        if named and (self.otherwise is None or self.classes != (registered,)):
            return registered
        return self.otherwise


def wanted(argument: Any) -> Wanted | None:
    """What stands in the brackets of ``Event[...]``. None: JSON, whatever the event type."""
    classes: list[type] = []
    names: set[str] = set()
    takes_json = False
    for each in _members(argument):
        origin = typing.get_origin(each)
        text = each.__forward_arg__ if isinstance(each, ForwardRef) else each
        if isinstance(text, str):
            names.update(_NAME.findall(text))
        elif isinstance(origin, type) and has_fields(origin):
            classes.append(origin)
        elif origin is None and isinstance(each, type) and each not in _JSON:
            classes.append(each)
        else:
            takes_json = True
    if not classes and not names:
        return None
    return Wanted(
        tuple(classes), frozenset(names), None if takes_json or names else _unwrapped(argument)
    )


def _members(argument: Any) -> list[Any]:
    argument = _unwrapped(argument)
    if typing.get_origin(argument) not in (Union, types.UnionType):
        return [argument]
    return [one for each in typing.get_args(argument) for one in _members(each)]


def _unwrapped(argument: Any) -> Any:
    """Without ``Annotated``, and without the name that a ``type`` statement gave it."""
    while True:
        if typing.get_origin(argument) is typing.Annotated:
            argument = typing.get_args(argument)[0]
        elif type(argument).__name__ == "TypeAliasType":
            argument = argument.__value__
        else:
            return argument


def _is_one_of(cls: type, classes: tuple[type, ...]) -> bool:
    try:
        return issubclass(cls, classes)
    except TypeError:  # a TypedDict or a Protocol
        return False
