"""The rooms as a picture: boxes in rows, the lowest at the bottom, arrows to what they import."""

from __future__ import annotations

from collections import defaultdict
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from .imports import direct, levels

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .imports import Room

BOX_WIDTH, BOX_HEIGHT = 132, 34
LANE_WIDTH = 26
"""Of a line that passes between boxes of a row."""
GAP, ROW_HEIGHT, MARGIN = 22, 78, 24
SWEEPS = 12
"""How often rows are sorted by their neighbours; afterwards nothing moves any more."""

_STYLE = """
  .ground { fill: #ffffff; }
  .room { fill: #eef3fa; stroke: #4a6a94; }
  .module { fill: #ffffff; stroke: #4a6a94; }
  text { font: 14px ui-monospace, Menlo, Consolas, monospace; fill: #1c2733; text-anchor: middle; }
  path { fill: none; stroke: #5b7083; stroke-width: 1.3; marker-end: url(#tip); }
  .types { stroke-dasharray: 5 4; }
"""
_TIP = (
    '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7"'
    ' orient="auto"><path d="M0 0L8 4L0 8z"'
    ' style="fill:#5b7083;stroke:none;marker-end:none"/></marker>'
)


class Spot(NamedTuple):
    """A place in a row: a room, or where a line from one room to another passes."""

    level: int
    name: str


def draw(rooms: Mapping[str, Room], title: str) -> str:
    """An SVG. Arrows that follow from others are left out, or nobody could follow any."""
    lines = _lines(rooms)
    rows = _sorted_rows(rooms, lines)
    x = _columns(rows)
    width = max(_row_widths(rows)) + 2 * MARGIN
    height = len(rows) * ROW_HEIGHT - (ROW_HEIGHT - BOX_HEIGHT) + 2 * MARGIN
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{_STYLE}</style>",
        f"<defs>{_TIP}</defs>",
        f'<rect class="ground" width="{width}" height="{height}"/>',
    ]
    middle = width / 2
    for line in lines:
        importer, imported = line[0].name, line[-1].name
        points = [(middle + x[spot], _top(spot.level, len(rows))) for spot in line]
        kind = ' class="types"' if imported in rooms[importer].type_imports else ""
        parts.append(f'<path{kind} d="{_curve(points)}"/>')
    for name, room in sorted(rooms.items()):
        spot = next(each for row in rows for each in row if each.name == name)
        parts.append(_box(room, middle + x[spot], _top(spot.level, len(rows))))
    return "\n".join([*parts, "</svg>", ""])


def _lines(rooms: Mapping[str, Room]) -> list[list[Spot]]:
    """Each arrow as the spots that it passes, one for each row."""
    level_of = {name: number for number, names in enumerate(levels(rooms)) for name in names}
    found = []
    for importer, imported in sorted((a, b) for a, needs in direct(rooms).items() for b in needs):
        between = range(level_of[importer] - 1, level_of[imported], -1)
        passed = [Spot(level, f"{importer}>{imported}") for level in between]
        ends = Spot(level_of[importer], importer), Spot(level_of[imported], imported)
        found.append([ends[0], *passed, ends[1]])
    return found


def _sorted_rows(rooms: Mapping[str, Room], lines: list[list[Spot]]) -> list[list[Spot]]:
    """Rows from the lowest, each sorted so that its lines to the rows beside it are short."""
    rows = [[Spot(number, name) for name in names] for number, names in enumerate(levels(rooms))]
    above, below = defaultdict[Spot, list[Spot]](list), defaultdict[Spot, list[Spot]](list)
    for line in lines:
        for spot in line[1:-1]:
            rows[spot.level].append(spot)
        for upper, lower in pairwise(line):
            above[lower].append(upper)
            below[upper].append(lower)
    for sweep in range(SWEEPS):
        neighbours, order = (below, rows) if sweep % 2 == 0 else (above, rows[::-1])
        for row in order:
            x = _columns(rows)
            at = {
                spot: sum(x[each] for each in near) / len(near)
                if (near := neighbours[spot])
                else x[spot]
                for spot in row
            }
            row.sort(key=lambda spot: (at[spot], spot.name))
    return rows


def _columns(rows: list[list[Spot]]) -> dict[Spot, float]:
    """The middle of each spot, as a distance from the middle of the picture."""
    x = {}
    for row, width in zip(rows, _row_widths(rows), strict=True):
        left = -width / 2
        for spot in row:
            x[spot] = left + _width(spot) / 2
            left += _width(spot) + GAP
    return x


def _row_widths(rows: list[list[Spot]]) -> list[int]:
    return [sum(_width(spot) for spot in row) + GAP * (len(row) - 1) for row in rows]


def _width(spot: Spot) -> int:
    return LANE_WIDTH if ">" in spot.name else BOX_WIDTH


def _top(level: int, rows: int) -> float:
    return MARGIN + (rows - 1 - level) * ROW_HEIGHT


def _curve(points: list[tuple[float, float]]) -> str:
    """From the bottom of the first box to the top of the last, straight past those between."""
    x, y = points[0][0], points[0][1] + BOX_HEIGHT
    text = f"M{x:.0f} {y:.0f}"
    for number, (to_x, top) in enumerate(points[1:], 2):
        half = (top - y) / 2
        text += f"C{x:.0f} {y + half:.0f} {to_x:.0f} {top - half:.0f} {to_x:.0f} {top:.0f}"
        x, y = to_x, top
        if number < len(points):
            y += BOX_HEIGHT
            text += f"V{y:.0f}"
    return text


def _box(room: Room, middle: float, top: float) -> str:
    is_package = room.modules != [room.modules[0]] or room.modules[0].endswith("__init__.py")
    shown = f"{room.name}/" if is_package else f"{room.name}.py"
    return (
        f'<rect class="{"room" if is_package else "module"}" x="{middle - BOX_WIDTH / 2:.0f}"'
        f' y="{top:.0f}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="5"/>'
        f'<text x="{middle:.0f}" y="{top + 22:.0f}">{escape(shown)}</text>'
    )
