"""The demo on a terminal: one screen, redrawn repeatedly."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import anyio
from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.constrain import Constrain
from rich.live import Live
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from .listeners import DESCRIPTIONS

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import RenderableType

    from .counts import Row, Snapshot

INTERVAL_SECONDS = 0.25
WIDEST = 100
"""Columns. Wider lines are hard to follow."""


async def show(snapshot: Callable[[], Snapshot]) -> None:
    """Show a new snapshot four times a second, until cancelled or until the terminal is closed."""
    terminal = sys.stdout  # Live replaces it
    with Live(frame(snapshot()), screen=True, auto_refresh=False) as live:
        while terminal.isatty():
            # In a thread: a terminal that accepts no output (Ctrl-S) must not block the event loop,
            # in which the consumer runs too.
            await anyio.to_thread.run_sync(paint, live, snapshot())
            await anyio.sleep(INTERVAL_SECONDS)


def paint(live: Live, snapshot: Snapshot) -> None:
    live.update(frame(snapshot), refresh=True)


def frame(snapshot: Snapshot) -> RenderableType:
    """The whole screen. Fits into 80 columns and 24 lines."""
    parts = Group(
        _head(snapshot),
        Text(
            "A shop commits orders together with their events; one order in four is rolled back. "
            "Three listeners, in one consumer, each read all that is committed:"
        ),
        Padding(_descriptions(), (0, 0, 1, 2)),
        _shop(snapshot),
        _listeners(snapshot.rows),
        _failures(snapshot.rows),
    )
    return Constrain(parts, WIDEST)


def _head(snapshot: Snapshot) -> Table:
    head = Table.grid(expand=True)
    head.add_column(no_wrap=True)
    head.add_column(justify="right", no_wrap=True)
    hint = "closed; the listeners finish ..." if snapshot.closing else "Ctrl-C to stop"
    head.add_row(Text("sa_outbox demo", style="bold"), Text(hint, style="bold yellow"))
    return head


def _descriptions() -> Table:
    table = _grid()
    for listener, description in DESCRIPTIONS.items():
        table.add_row(listener, description)
    return table


def _shop(snapshot: Snapshot) -> Text:
    return Text.assemble(
        f"{snapshot.seconds:,.0f} s   {snapshot.orders:,} orders   ",
        f"{snapshot.refused:,} rolled back   {snapshot.written:,} events\n",
        "events per second:  written ",
        (f"{snapshot.written_per_second:,.0f}", "bold"),
        "   handled ",
        (f"{snapshot.handled_per_second:,.0f}", "bold"),
        " by all listeners",
    )


def _listeners(rows: tuple[Row, ...]) -> Table:
    table = Table(box=SIMPLE_HEAD, header_style="bold", pad_edge=False)
    table.add_column("listener", no_wrap=True, overflow="crop", min_width=12, style="cyan")
    # As wide as an hour's numbers: what is read repeatedly must not move.
    for title, width in (("position", 9), ("lag", 6), ("handled", 9), ("retries", 7), ("dead", 4)):
        table.add_column(title, justify="right", no_wrap=True, overflow="crop", min_width=width)
    table.add_column("state", no_wrap=True, overflow="crop", min_width=12)
    for row in rows:
        table.add_row(
            row.listener,
            f"{row.position:,}",
            f"{row.lag:,}",
            f"{row.handled:,}",
            Text(f"{row.retries:,}", style="yellow" if row.retries else ""),
            Text(f"{row.dead_letters:,}", style="bold red" if row.dead_letters else ""),
            row.state,
        )
    return table


def _failures(rows: tuple[Row, ...]) -> RenderableType:
    table = _grid()
    failed = [row for row in rows if row.failure]
    for row in failed:
        table.add_row(row.listener, Text(row.failure))  # not read as markup
    return Group(Text("last failures:"), Padding(table, (0, 0, 0, 2))) if failed else ""


def _grid() -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True, overflow="crop", min_width=12, style="cyan")
    grid.add_column(no_wrap=True, overflow="crop")
    return grid
