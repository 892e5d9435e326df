"""Line charts as SVG, rendered here: there is nothing for a browser to load or run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from .. import html as h
from .parts import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from ..html import Markup

WIDTH, HEIGHT = 460, 190
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 8, 10, 24
MAX_LINES: Final = 6
MAX_POINTS: Final = 240
"""Points per line: more than a screen can show."""


@dataclass(frozen=True, slots=True)
class Line:
    name: str
    points: Sequence[tuple[datetime, float]]
    series: int
    """The colour: a listener has the same one in every chart."""


def chart(title: str, unit: str, lines: Sequence[Line], shown: Callable[[float], str]) -> Markup:
    """A figure with its legend, and a text description for those who can't see it."""
    drawn = [each for each in lines if len(each.points) > 1][:MAX_LINES]
    if not drawn:
        return h.div(
            h.h3(title),
            h.p("A chart needs two samples; the next one comes in a moment.", class_="empty"),
            class_="chart",
        )
    begin = min(each.points[0][0] for each in drawn)
    end = max(each.points[-1][0] for each in drawn)
    top = nice(max(value for each in drawn for _, value in each.points))
    seconds = max((end - begin).total_seconds(), 0.001)

    def place(at: datetime, value: float) -> tuple[float, float]:
        across = (at - begin).total_seconds() / seconds
        x = _LEFT + across * (WIDTH - _LEFT - _RIGHT)
        y = HEIGHT - _BOTTOM - value / top * (HEIGHT - _TOP - _BOTTOM)
        return round(x, 1), round(y, 1)

    lately = ", ".join(f"{visible(each.name)} {shown(each.points[-1][1])}" for each in drawn)
    return h.div(
        h.h3(title, h.span(unit, class_="unit")),
        h.svg(
            _grid(top, shown),
            _times(begin, end),
            [_line(each, place) for each in reversed(drawn)],
            viewBox=f"0 0 {WIDTH} {HEIGHT}",
            role="img",
            aria_label=f"{title}, {unit}, since {begin:%H:%M:%S} UTC. Now: {lately}.",
        ),
        h.ul([_legend(each, shown) for each in drawn], class_="legend"),
        class_="chart",
    )


def nice(highest: float) -> float:
    """A round number above it, so that the scale stays steady."""
    if highest <= 0:
        return 1.0
    size: float = 1.0
    while size > highest:
        size /= 10
    while size * 10 <= highest:
        size *= 10
    return next(size * step for step in (1, 2, 5, 10) if size * step >= highest)


def thinned(points: Sequence[tuple[datetime, float]]) -> list[tuple[datetime, float]]:
    """No more points than can be seen; of those that coincide, the highest, which matters most."""
    if len(points) <= MAX_POINTS:
        return list(points)
    size = -(-len(points) // MAX_POINTS)
    parts = [points[begin : begin + size] for begin in range(0, len(points), size)]
    return [max(part, key=lambda point: point[1]) for part in parts[:-1]] + [points[-1]]


def _grid(top: float, shown: Callable[[float], str]) -> list[Markup]:
    found = []
    for step in (0, 0.5, 1):
        y = round(HEIGHT - _BOTTOM - step * (HEIGHT - _TOP - _BOTTOM), 1)
        found.append(h.svg_line(x1=_LEFT, x2=WIDTH - _RIGHT, y1=str(y), y2=str(y), class_="grid"))
        text = shown(top * step)
        found.append(h.svg_text(text, x=_LEFT - 6, y=str(y + 4), text_anchor="end", class_="tick"))
    return found


def _times(begin: datetime, end: datetime) -> list[Markup]:
    y = HEIGHT - 7
    return [
        h.svg_text(f"{begin:%H:%M:%S}", x=_LEFT, y=y, class_="tick"),
        h.svg_text(f"{end:%H:%M:%S} UTC", x=WIDTH - _RIGHT, y=y, text_anchor="end", class_="tick"),
    ]


def _line(line: Line, place: Callable[[datetime, float], tuple[float, float]]) -> Markup:
    steps = [place(at, value) for at, value in thinned(line.points)]
    path = "M" + "L".join(f"{x} {y}" for x, y in steps)
    return h.svg_path(d=path, class_=f"line series{line.series}")


def _legend(line: Line, shown: Callable[[float], str]) -> Markup:
    return h.li(
        h.span(class_=f"swatch series{line.series}", aria_hidden="true"),
        h.bdi(visible(line.name)),
        h.span(shown(line.points[-1][1]), class_="figure"),
    )
