"""Each room's docstring is its map: it names every module and every room inside it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from docs.internals.make_map import imports
from docs.internals.make_map.imports import Room

PACKAGE = Path(__file__).parent.parent.parent / "sa_outbox"
ROOMS = sorted(path.parent for path in PACKAGE.rglob("__init__.py"))
WITHOUT_A_PLACE = {"__init__.py", "__main__.py", "_version.py"}
LARGEST_ROOM = 15
MOST_IN_THE_HALL = 8
"""Modules of the consumer that are in none of its rooms: whoever reads it begins there."""
LARGE_ROOMS = {
    "cli": "one file for each group of commands, none of which knows another",
    "dashboard": "steps of a request and the parts of a page; its two rooms are inside it",
    "dashboard/views": "one or two files for each page, and the few parts they are made of",
    "doctor": "one file for each thing that is examined, none of which knows another",
    "operations": "one or two files for each thing that an operator looks at or changes",
    "producer": "steps of adding an event; one file is the slot where a test watches them",
    "relay": "one file, or two, for each kind of broker, none of which knows another",
}


def map_of(room: Path) -> str:
    return ast.get_docstring(ast.parse((room / "__init__.py").read_text())) or ""


def inside(room: Path) -> Iterator[str]:
    for path in sorted(room.iterdir()):
        if path.suffix == ".py" and path.name not in WITHOUT_A_PLACE:
            yield path.name
        elif (path / "__init__.py").is_file():
            yield f"{path.name}/"


def named(text: str) -> set[str]:
    return set(re.findall(r"``([a-z_0-9/]+(?:\.py|/))``", text))


def test_every_module_and_every_room_is_on_the_map_of_its_room() -> None:
    missing = [
        f"{room.relative_to(PACKAGE.parent)}: {name}"
        for room in ROOMS
        for name in inside(room)
        if name not in named(map_of(room))
    ]

    assert missing == []


def test_a_map_names_nothing_that_is_not_there() -> None:
    gone = [
        f"{room.relative_to(PACKAGE.parent)}: {name}"
        for room in ROOMS
        for name in named(map_of(room))
        if not any((base / name).exists() for base in (room, *room.parents))
    ]

    assert gone == []


def test_no_docstring_names_a_module_that_is_not_there() -> None:
    gone = [
        f"{path.relative_to(PACKAGE.parent)}: {name}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for name in re.findall(r"``([a-z_0-9/]+\.py)``", path.read_text())
        if not any((base / name).exists() for base in path.parents)
    ]

    assert gone == []


def test_a_room_is_not_a_heap() -> None:
    sizes = {
        room.relative_to(PACKAGE).as_posix(): sum(name.endswith(".py") for name in inside(room))
        for room in ROOMS
    }
    large = {room for room, size in sizes.items() if size > LARGEST_ROOM}

    assert large == LARGE_ROOMS.keys(), {room: sizes[room] for room in large}
    assert sizes["consumer"] <= MOST_IN_THE_HALL


IMPORTS = re.compile(r"(?<!\w )Imports (.+?)[.:;](?=\s|$)", re.DOTALL)


def disagreement(sentence: str, name: str, beside: Mapping[str, Room]) -> str | None:
    """What a room's sentence on its imports says wrongly of the rooms *beside* it."""
    said = {each.removesuffix(".py") for each in re.findall(r"``([a-z_./]+)``", sentence)}
    needs = beside[name].needs - {"_version"}
    wrong = said - needs
    allowed = said.union(*(below(each, beside) for each in said & beside.keys()))
    missing = needs - (allowed if re.search(r"\bbelow\b", sentence) else said)
    if wrong or missing:
        return f"{name}: says {sorted(wrong)}, leaves out {sorted(missing)}"
    return None


def below(name: str, beside: Mapping[str, Room]) -> set[str]:
    """All that a room imports, and what that imports."""
    found, new = set[str](), {name}
    while new:
        found |= new
        new = set[str]().union(*(beside[each].needs for each in new)) - found
    return found - {name}


@pytest.mark.parametrize("parent", imports.parents())
def test_a_map_says_which_rooms_beside_it_are_imported(parent: str) -> None:
    """Types count: whoever reads a room has to know them, too."""
    beside = imports.rooms(parent)
    folder = PACKAGE.joinpath(*parent.split(".")[1:])
    packages = [name for name in beside if (folder / name / "__init__.py").is_file()]
    said = {name: IMPORTS.search(map_of(folder / name)) for name in packages}
    silent = [name for name, sentence in said.items() if sentence is None]
    wrong = [
        found
        for name, sentence in said.items()
        if sentence is not None and (found := disagreement(sentence[1], name, beside)) is not None
    ]

    assert (silent, wrong) == ([], [])


def test_what_a_map_says_wrongly_is_found() -> None:
    beside = {
        "top": Room("top", imports={"middle"}, type_imports={"bottom"}),
        "middle": Room("middle", imports={"bottom"}),
        "bottom": Room("bottom"),
    }

    assert disagreement("``middle`` and the rooms below it", "top", beside) is None
    assert disagreement("``middle`` and ``bottom``", "top", beside) is None
    assert disagreement("no other package", "bottom", beside) is None
    assert disagreement("``middle`` only", "top", beside) == "top: says [], leaves out ['bottom']"
    assert disagreement("``top``", "middle", beside) == (
        "middle: says ['top'], leaves out ['bottom']"
    )
