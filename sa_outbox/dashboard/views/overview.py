"""The first page: is anything wrong, how fast is it, who is behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .. import html as h
from ..html import Child, Markup, joined
from .chart import MAX_LINES, Line, chart
from .layout import Frame, heading, panel
from .listener_state import Standing, standing
from .listeners import listeners_table
from .parts import NOTHING, ago, count, counted, rate, span, value

if TYPE_CHECKING:
    from sa_outbox.operations.overview import Overview

    from ..history import History

PARTS: Final = ("tiles", "charts", "listeners", "others")


def overview_page(frame: Frame, seen: Overview, history: History) -> str:
    parts = live_parts(frame, seen, history)
    return frame.page(
        "Overview",
        heading("Overview", h.div(id="live-state", class_="live", role="status")),
        h.div(
            *(h.div(*parts[name], id=name, class_=name) for name in PARTS),
            id="live",
            data_source=frame.url("/live"),
        ),
        at="/",
    )


def live_parts(frame: Frame, seen: Overview, history: History) -> dict[str, list[Child]]:
    """The content of each element that changes, by its id."""
    return {
        "tiles": list(_tiles(frame, seen, history)),
        "charts": [_throughput(history), _lag(history)],
        "listeners": [panel("Listeners", listeners_table(frame, seen))],
        "others": [_consumers(seen), _holders(seen)],
    }


def live_texts(frame: Frame, seen: Overview, history: History) -> dict[str, str]:
    return {name: joined(inside) for name, inside in live_parts(frame, seen, history).items()}


def _tiles(frame: Frame, seen: Overview, history: History) -> list[Markup]:
    written = next(reversed(list(history.rates())), None)
    worst = max(seen.listeners, key=lambda each: each.lag_seconds or 0.0, default=None)
    wrong = [each for each in seen.listeners if standing(each, seen).tone in ("bad", "warn")]
    lag = None if worst is None else worst.lag_seconds
    return [
        _tile(
            "Needs attention",
            count(len(wrong)),
            f"of {counted(len(seen.listeners), 'listener')}" if wrong else "every listener is fine",
            Standing("", "warn" if wrong else "good"),
        ),
        _tile(
            "Dead letters",
            count(seen.dead_letters, 1000 if any(
                each.dead_letters >= 1000 for each in seen.listeners) else None),
            "are open" if seen.dead_letters else "none is open",
            Standing("", "bad" if seen.dead_letters else "good"),
            frame.url("/dead-letters"),
        ),
        _tile(
            "Longest lag",
            span(lag) if lag else "0 s",
            ["of ", value(worst.name)] if worst is not None and lag else "nobody is behind",
            Standing("", "warn" if (lag or 0) > 60 else "quiet"),
        ),
        _tile(
            "Written",
            rate(written.written) if written else NOTHING,
            "events a second",
            Standing("", "quiet"),
            frame.url("/events"),
        ),
        _tile(
            "Consumers",
            count(len(seen.consumers)),
            _alive(len(seen.consumers)),
            Standing("", "quiet" if seen.consumers else "bad"),
        ),
    ]  # fmt: skip


def _alive(consumers: int) -> str:
    if not consumers:
        return "nothing is delivered"
    return "process is alive" if consumers == 1 else "processes are alive"


def _tile(
    title: str, figure: str, under: Child, stands: Standing, href: str | None = None
) -> Markup:
    inside = (
        h.span(title, class_="name"),
        h.span(figure, class_="figure"),
        h.span(under, class_="under"),
    )
    of = f"tile {stands.tone}"
    return h.a(*inside, href=href, class_=of) if href else h.div(*inside, class_=of)


def _series(history: History) -> dict[str, int]:
    """A colour for each listener; 0 is for events written."""
    names = sorted({name for each in history.samples for name in each.points})
    return {name: 1 + number % (MAX_LINES - 1) for number, name in enumerate(names)}


def _throughput(history: History) -> Markup:
    rates, series = list(history.rates()), _series(history)
    lines = [Line("written", [(each.at, each.written) for each in rates], 0)]
    lines += [
        Line(
            name, [(each.at, each.handled[name]) for each in rates if name in each.handled], number
        )
        for name, number in series.items()
    ]
    return chart("Throughput", "events a second", lines, rate)


def _lag(history: History) -> Markup:
    samples, series = list(history.samples), _series(history)
    latest = samples[-1].points if samples else {}
    worst = sorted(latest, key=lambda name: (-latest[name].lag_seconds, name))[:MAX_LINES]
    lines = [
        Line(
            name,
            [(each.at, each.points[name].lag_seconds) for each in samples if name in each.points],
            series[name],
        )
        for name in sorted(worst)
    ]
    return chart("Lag", "age of the oldest event that waits", lines, span)


def _consumers(seen: Overview) -> Markup:
    if not seen.consumers:
        said: Child = h.p("No process has announced itself.", class_="empty")
    else:
        said = h.ul(
            [
                h.li(
                    h.code(value(each.owner)),
                    h.span("since ", ago(each.started_at, seen.at), class_="note"),
                    h.span(counted(len(each.listeners), "listener"), class_="note"),
                )
                for each in seen.consumers[:50]
            ],
            class_="plain",
        )
    return panel("Consumers", said, note="processes that are alive")


def _holders(seen: Overview) -> Markup | None:
    if not seen.holders:
        return None
    return panel(
        "Open transactions",
        h.ul(
            [
                h.li(
                    h.code(value(each.application_name or each.transaction)),
                    h.span(f"pid {each.pid}" if each.pid else "prepared", class_="note"),
                    h.span(f"{each.state}, for {span(each.seconds)}", class_="note"),
                )
                for each in seen.holders[:50]
            ],
            class_="plain",
        ),
        note="they have written events that are not visible yet",
    )
