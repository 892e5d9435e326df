"""Draws the charts of docs/performance.md and fills in its tables, from benchmarks/results/.

``make charts``. Plain SVG: bars with their figures, dark or light as the reader's
system is. The page has a place for each table, between ``<!-- figures: KEY -->`` and
``<!-- end -->``; a test compares page and charts with the results.
"""

from __future__ import annotations

import re
from pathlib import Path
from xml.sax.saxutils import escape

from .report import RESULTS, Report, Table, figure, read

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "performance.md"
IMAGES = ROOT / "docs" / "images"
CHARTED = {
    "drain": "events/s",
    "bulk-10000": "events/s",
    "handlers": "events/s",
    "notifier": "ratio",
    "peers-drain": "events/s",
    "peers-latency": "p50 ms",
    "long-rates": "ratio",
    "long-snapshot": "ratio",
}
"""The column that a table's chart shows."""
PLACE = re.compile(r"(?<=<!-- figures: )(?P<key>[\w-]+) -->\n.*?<!-- end -->", re.DOTALL)
PLACEHOLDER = "Not measured yet."
"""tests/docs/test_promises.py knows where it may stand, and why."""
LEFT, BAR, RIGHT, ROW, TOP = 270, 340, 90, 26, 34
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1a1a1a }
.title { font-weight: 600 }
rect { fill: #9db4cf } .ours { fill: #1f5fa8 }
@media (prefers-color-scheme: dark) {
 text { fill: #e6e6e6 } rect { fill: #51657f } .ours { fill: #6ea8ec }
}
"""
OURS = ("session.add_event", "order=", "sa_outbox", "concurrency=", "defaults", "group_commit")


def reports() -> list[Report]:
    return [read(path) for path in sorted(RESULTS.glob("*.json"))]


def chart(table: Table, column: str) -> str:
    """Horizontal bars, one for each row, as SVG."""
    values = {name: table.value(name, column) for name in table.rows}
    longest = max(values.values()) or 1.0
    width, height = LEFT + BAR + RIGHT, TOP + ROW * len(values) + 8
    title = escape(f"{table.title}: {column}")
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
        f"<title>{title}</title>",
        f"<style>{STYLE}</style>",
        f'<text class="title" x="8" y="20">{title}</text>',
    ]
    for number, (name, value) in enumerate(values.items()):
        top = TOP + ROW * number
        kind = ' class="ours"' if name.startswith(OURS) else ""
        length = max(1.0, BAR * value / longest)
        lines += [
            f'<text x="{LEFT - 8}" y="{top + 16}" text-anchor="end">{escape(name)}</text>',
            f'<rect{kind} x="{LEFT}" y="{top + 3}" width="{length:.1f}" height="{ROW - 8}"/>',
            f'<text x="{LEFT + length + 6:.1f}" y="{top + 16}">{figure(column, value)}</text>',
        ]
    return "\n".join([*lines, "</svg>", ""])


def block(report: Report, table: Table) -> str:
    """What the page shows of one table: machine and day, figures, goals, and the chart."""
    of = report.machine
    run = f"{of['date']}, {of['cores']} cores, load {of['load']}, PostgreSQL {of['PostgreSQL']}"
    lines = [f"`python -m benchmarks.{report.name}`: {run}.", "", "```text", table.title]
    lines += [*table.lines(), *(f"  {verdict}" for verdict in table.verdicts()), "```"]
    if table.key in CHARTED:
        lines += ["", f"![{table.title}](images/{image_name(table)})"]
    return "\n".join(line.rstrip() for line in lines)


def machines() -> str:
    """All that is known of each run: on which machine, with which versions."""
    lines = []
    for report in reports():
        known = ", ".join(f"{name} {value}" for name, value in report.machine.items())
        lines.append(f"- `{report.name}`: {known}")
    return "\n".join(lines)


def image_name(table: Table) -> str:
    return f"performance-{table.key}.svg"


def images() -> dict[str, str]:
    return {
        image_name(table): chart(table, CHARTED[table.key])
        for report in reports()
        for table in report.tables
        if table.key in CHARTED
    }


def filled(page: str) -> str:
    """The page with the figures of the results in its places."""
    blocks = {table.key: block(report, table) for report in reports() for table in report.tables}
    blocks["machines"] = machines()

    def fill(place: re.Match[str]) -> str:
        shown = blocks.get(place["key"], PLACEHOLDER)
        return f"{place['key']} -->\n\n{shown}\n\n<!-- end -->"

    return PLACE.sub(fill, page)


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    for name, content in images().items():
        (IMAGES / name).write_text(content)
    PAGE.write_text(filled(PAGE.read_text()))


if __name__ == "__main__":
    main()
