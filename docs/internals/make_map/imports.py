"""Which module imports which, read from the source: nothing is imported for it."""

from __future__ import annotations

import ast
from collections import defaultdict
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path(__file__).parents[3]
PACKAGE = "sa_outbox"


class RoomCycle(Exception):
    """Rooms import each other in a circle."""


@dataclass(frozen=True)
class Import:
    """Module *importer* needs *imported*; *for_types*: only a type checker sees it."""

    importer: str
    imported: str
    for_types: bool


@dataclass
class Room:
    """A package or a single module, and the rooms beside it that it imports."""

    name: str
    modules: list[str] = field(default_factory=list)
    lines: int = 0
    imports: set[str] = field(default_factory=set)
    type_imports: set[str] = field(default_factory=set)
    """Imported for types only."""

    @property
    def needs(self) -> set[str]:
        return self.imports | self.type_imports


def module_files() -> dict[str, Path]:
    """Every module of the package by its dotted name."""
    found = {}
    for path in sorted((ROOT / PACKAGE).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(modules: Mapping[str, Path]) -> Iterator[Import]:
    """Every import between *modules*, those inside functions too."""
    for name, path in modules.items():
        tree = ast.parse(path.read_text(), str(path))
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        for node, for_types in _import_statements(tree, for_types=False):
            for imported in _named(node, package, modules):
                if imported != name:
                    yield Import(name, imported, for_types)


def rooms(inside: str) -> dict[str, Room]:
    """The rooms directly *inside* a package; its own ``__init__`` is no room, but a front door."""
    modules = module_files()
    found: dict[str, Room] = {}
    for name, path in modules.items():
        if (place := _room_of(name, inside)) is not None:
            room = found.setdefault(place, Room(place))
            room.modules.append(path.relative_to(ROOT / PACKAGE).as_posix())
            room.lines += len(path.read_text().splitlines())
    for each in imports(modules):
        importer, imported = _room_of(each.importer, inside), _room_of(each.imported, inside)
        if importer is not None and imported is not None and importer != imported:
            room = found[importer]
            (room.type_imports if each.for_types else room.imports).add(imported)
    for room in found.values():
        room.type_imports -= room.imports
    return found


def parents() -> list[str]:
    """The packages with packages inside."""
    packages = [name for name, path in module_files().items() if path.name == "__init__.py"]
    return sorted({name.rpartition(".")[0] for name in packages if name != PACKAGE})


def levels(found: Mapping[str, Room]) -> list[list[str]]:
    """The rooms from the lowest, which import nothing, to the highest.

    Raises RoomCycle: types count, for who reads one room has to know the other.
    """
    try:
        order = tuple(
            TopologicalSorter({name: r.needs for name, r in found.items()}).static_order()
        )
    except CycleError as error:
        raise RoomCycle(" -> ".join(error.args[1])) from None
    level: dict[str, int] = {}
    for name in order:
        level[name] = max((level[each] + 1 for each in found[name].needs), default=0)
    layers = defaultdict(list)
    for name in sorted(level):
        layers[level[name]].append(name)
    return [layers[each] for each in sorted(layers)]


def direct(found: Mapping[str, Room]) -> dict[str, set[str]]:
    """The imports of each room without those that follow from others: A imports B, B imports C."""
    below: dict[str, set[str]] = {}
    for name in (each for level in levels(found) for each in level):
        needs = found[name].needs
        below[name] = needs.union(*(below[each] for each in needs))
    return {
        name: room.needs - set[str]().union(*(below[each] for each in room.needs))
        for name, room in found.items()
    }


def _room_of(module: str, inside: str) -> str | None:
    if not module.startswith(f"{inside}."):
        return None
    return module[len(inside) + 1 :].partition(".")[0]


def _import_statements(
    tree: ast.AST, *, for_types: bool
) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield node, for_types
        elif isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            for each in node.body:
                yield from _import_statements(ast.Module([each], []), for_types=True)
            for each in node.orelse:
                yield from _import_statements(ast.Module([each], []), for_types=for_types)
        else:
            yield from _import_statements(node, for_types=for_types)


def _named(
    node: ast.Import | ast.ImportFrom, package: str, modules: Mapping[str, Path]
) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name in modules)
        return
    source = node.module or ""
    if node.level:
        above = package.rsplit(".", node.level - 1)[0] if node.level > 1 else package
        source = f"{above}.{source}".rstrip(".")
    for alias in node.names:
        whole = f"{source}.{alias.name}"
        if whole in modules:
            yield whole
        elif source in modules:
            yield source
