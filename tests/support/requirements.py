"""Which installed packages a file of requirements does not lead to."""

from __future__ import annotations

import functools
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

HIDING = Path(__file__).parent / "hiding"
"""A folder on a program's path that hides packages from it."""


@functools.cache
def hidden(file: Path) -> list[str]:
    """Packages that are installed here, and would not be by what *file* requires."""
    reached: set[tuple[str, str]] = set()
    for each in _named(file):
        _reach(Requirement(each), reached)
    found = {name for name, _ in reached}
    return [
        package
        for package, distributions in packages_distributions().items()
        if not found & {canonicalize_name(each) for each in distributions}
    ]


def _named(file: Path) -> list[str]:
    """The requirements in *file*, and in those that it includes."""
    found: list[str] = []
    for line in file.read_text().splitlines():
        include = line.removeprefix("-r ")
        found += [line] if include == line else _named(file.parent / include)
    return found


def _reach(wanted: Requirement, reached: set[tuple[str, str]]) -> None:
    """Add it and all that it needs, each with the extras that are asked of it."""
    name = canonicalize_name(wanted.name)
    for extra in {"", *wanted.extras}:
        if (name, extra) in reached:
            continue
        reached.add((name, extra))
        for each in _needs(name):
            if each.marker is None or each.marker.evaluate({"extra": extra}):
                _reach(each, reached)


def _needs(name: str) -> list[Requirement]:
    try:
        return [Requirement(each) for each in requires(name) or ()]
    except PackageNotFoundError:  # one for another Python or system
        return []
