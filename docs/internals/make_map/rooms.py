"""The page ``rooms.md``: a picture of the rooms and a table, for the package and its consumer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .drawing import draw
from .imports import PACKAGE, levels, rooms
from .pages import MADE, UNSEARCHED
from .scenes import SCENES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from .imports import Room

SHOWN = {
    PACKAGE: ("The package", "rooms.svg"),
    f"{PACKAGE}.consumer": ("The consumer", "rooms-consumer.svg"),
}
"""Packages whose rooms are shown: the title of each, and the file of its picture."""

_INTRODUCTION = """\
A room is a folder with one purpose, or a module that stands by itself. Its docstring is its map.
Rooms import downwards only: no room imports one that imports it, types included.

An arrow goes from a room to one that it imports; dashed, if only a type checker does. An arrow is
left out where others lead to the same room: the table has every import."""


def pictures() -> dict[str, str]:
    """Each file with its drawing. Raises RoomCycle."""
    return {
        file: draw(rooms(package), f"Rooms of {package} and their imports")
        for package, (_, file) in SHOWN.items()
    }


def page() -> str:
    """Raises RoomCycle."""
    head = [UNSEARCHED, "# The rooms", "", MADE, "", _INTRODUCTION]
    return "\n".join([*head, *_walks(), *_sections(), ""])


def _walks() -> Iterator[str]:
    yield from ("", "One event, step by step through these rooms:", "")
    yield from (f"- [{scene.title}](walk-{name}.md)" for name, scene in SCENES.items())


def _sections() -> Iterator[str]:
    for package, (title, file) in SHOWN.items():
        found = rooms(package)
        yield from ("", f"## {title}", "", f"![Rooms of {package}]({file})", "")
        yield "| room | modules | lines | imports | for types only |"
        yield "| --- | --- | --- | --- | --- |"
        folder = package.removeprefix(PACKAGE).lstrip(".").replace(".", "/")
        for level in reversed(levels(found)):
            yield from (_row(found[name], f"{folder}/" if folder else "") for name in level)


def _row(room: Room, folder: str) -> str:
    modules = [each.removeprefix(folder).removeprefix(f"{room.name}/") for each in room.modules]
    cells = (_listed(modules), f"{room.lines:,}", _listed(room.imports), _listed(room.type_imports))
    return f"| `{room.name}` | {' | '.join(cells)} |"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{each}`" for each in sorted(names))


def facts(text: str) -> Mapping[str, list[str]]:
    """What a page says of each room, but for the lines, which change with every commit."""
    title, found = "", {}
    for line in text.splitlines():
        if line.startswith("## "):
            title = line[3:]
        elif line.startswith("| `"):
            room, modules, _, *imports = (each.strip() for each in line.strip("|").split(" | "))
            found[f"{title}: {room}"] = [modules, *imports]
    return found
