"""What is public in a module, and in a class."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, cast

import griffe

from .contents import STANDS_FOR

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .contents import Page

ROOT = Path(__file__).parents[2]


@cache
def package() -> griffe.Module:
    return cast("griffe.Module", griffe.load("sa_outbox", search_paths=[ROOT]))


def at(path: str) -> griffe.Object:
    found = package()[path.partition(".")[2]] if "." in path else package()
    return cast("griffe.Object", found)


def described_on(page: Page) -> Iterator[tuple[str, list[griffe.Object]]]:
    """The modules of a page, each with its names; the last also has those of elsewhere."""
    for module in page.modules:
        extra = [at(path) for path in page.also] if module == page.modules[-1] else []
        yield module, _public(module, page.without) + extra


def _public(module: str, without: tuple[str, ...]) -> list[griffe.Object]:
    """The names of ``__all__``; or the classes and functions that the module defines or, if it is a
    package, takes from its own modules."""
    found = at(module)
    listed = [str(name) for name in found.exports or found.members]
    exported = found.exports is not None
    names = [each for each in listed if not each.startswith("_") and each not in without]
    objects = (
        at(STANDS_FOR[name]) if name in STANDS_FOR else target(found.members[name])
        for name in names
        if name in found.members
    )
    return [
        each
        for each in objects
        if each is not None and (exported or _belongs(each, found)) and not each.is_module
    ]


def _belongs(found: griffe.Object, module: griffe.Object) -> bool:
    at_home = found.path.startswith(f"{module.path}.")
    return at_home and (found.is_class or found.is_function)


def target(found: griffe.Object | griffe.Alias) -> griffe.Object | None:
    """What a name stands for; None for one that is another package's."""
    if not found.is_alias:
        return found  # type: ignore[return-value]  # an alias is told apart by its attribute
    try:
        resolved = found.final_target  # type: ignore[union-attr]
    except griffe.AliasResolutionError:
        return None
    return resolved if resolved.path.startswith("sa_outbox.") else None


def members(found: griffe.Class) -> Iterator[griffe.Object]:
    """Of the class and of its bases here, in the order of the source."""
    for name, each in {**found.inherited_members, **found.members}.items():
        member = None if name.startswith("_") else target(each)
        if member is not None and not name.startswith("test_"):  # a sentence, and called by pytest
            yield member


def options(name: str) -> griffe.Class:
    """The ``TypedDict`` of this name, wherever it is: arguments by name are typed with it."""
    waiting: list[griffe.Object] = [package()]
    while waiting:
        module = waiting.pop()
        own = module.members.get(name)
        if isinstance(own, griffe.Class):
            return own
        waiting += [each for each in module.members.values() if isinstance(each, griffe.Module)]
    raise LookupError(name)
