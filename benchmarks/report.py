"""What a benchmark says: tables of figures, printed, and recorded for the page and its charts.

``--record`` writes ``benchmarks/results/NAME.json``, or ``NAME-PART.json`` for a part: the tables
with the machine, the versions and the day. ``make charts`` makes ``docs/performance.md`` from these
files. Without it nothing is written: trying a benchmark changes no figure of the page.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .machine import describe

if TYPE_CHECKING:
    from collections.abc import Mapping

RESULTS = Path(__file__).parent / "results"
_DIGITS = {
    "ratio": 3,
    "from": 3,
    "to": 3,
    "µs": 1,
    "ms": 2,
    "MiB": 1,
    "%": 2,
}
"""Decimal places, by the last word of a column; none for all others."""


@dataclass(frozen=True, kw_only=True)
class Goal:
    """A bound for one figure. No test depends on it: machines differ, and the reader decides."""

    row: str
    column: str
    at_least: float | None = None
    at_most: float | None = None

    def is_met(self, value: float) -> bool:
        enough = self.at_least is None or value >= self.at_least
        return enough and (self.at_most is None or value <= self.at_most)

    @property
    def words(self) -> str:
        if self.at_least is not None:
            return f"at least {self.at_least:g}"
        return f"at most {self.at_most:g}"


@dataclass(frozen=True, kw_only=True)
class Table:
    key: str
    """Names the table in the results, on the page and in the file of its chart."""
    title: str
    columns: tuple[str, ...]
    rows: Mapping[str, tuple[float, ...]]
    goals: tuple[Goal, ...] = ()

    def value(self, row: str, column: str) -> float:
        return self.rows[row][self.columns.index(column)]

    def verdicts(self) -> list[str]:
        found = []
        for goal in self.goals:
            value = self.value(goal.row, goal.column)
            verdict = "met" if goal.is_met(value) else "missed"
            shown = figure(goal.column, value)
            found.append(f"{goal.row}, {goal.column}: {shown}, goal {goal.words}: {verdict}")
        return found

    def lines(self) -> list[str]:
        """As text with aligned columns."""
        width = max(30, *(len(name) for name in self.rows))
        widths = [max(11, len(column)) for column in self.columns]
        head = " ".join(f"{c:>{w}}" for c, w in zip(self.columns, widths, strict=True))
        lines = [f"  {'':<{width}} {head}"]
        for name, values in self.rows.items():
            cells = [figure(c, v) for c, v in zip(self.columns, values, strict=True)]
            aligned = " ".join(f"{cell:>{w}}" for cell, w in zip(cells, widths, strict=True))
            lines.append(f"  {name:<{width}} {aligned}")
        return lines


def figure(column: str, value: float) -> str:
    return f"{value:,.{_DIGITS.get(column.rsplit(maxsplit=1)[-1], 0)}f}"


@dataclass
class Report:
    """The tables of one benchmark, or of a part of it."""

    benchmark: str
    """The module, such as ``bench_bulk``."""
    machine: dict[str, str] = field(default_factory=describe)
    tables: list[Table] = field(default_factory=list)
    part: str = ""
    """What ``--only`` selects, of a benchmark with parts. Each has a file of its own, because each
    can be measured on another day."""

    @property
    def name(self) -> str:
        return f"{self.benchmark} --only {self.part}" if self.part else self.benchmark

    def add(self, table: Table) -> None:
        self.tables.append(table)
        print(f"\n{table.title}")
        print("\n".join(table.lines()))
        for verdict in table.verdicts():
            print(f"  {verdict}", flush=True)

    def introduce(self) -> None:
        print(", ".join(f"{name} {value}" for name, value in self.machine.items()), flush=True)

    def write(self) -> None:
        RESULTS.mkdir(exist_ok=True)
        content = {
            "benchmark": self.benchmark,
            **({"part": self.part} if self.part else {}),
            "machine": self.machine,
            "tables": [_rounded(asdict(table)) for table in self.tables],
        }
        text = json.dumps(content, indent=1, ensure_ascii=False)
        file = f"{self.benchmark}-{self.part}" if self.part else self.benchmark
        (RESULTS / f"{file}.json").write_text(text + "\n")


def read(path: Path) -> Report:
    content = json.loads(path.read_text())
    return Report(
        content["benchmark"],
        content["machine"],
        [_table(each) for each in content["tables"]],
        content.get("part", ""),
    )


def _table(content: dict[str, Any]) -> Table:
    return Table(
        key=content["key"],
        title=content["title"],
        columns=tuple(content["columns"]),
        rows={name: tuple(values) for name, values in content["rows"].items()},
        goals=tuple(Goal(**goal) for goal in content["goals"]),
    )


def _rounded(content: dict[str, Any]) -> dict[str, Any]:
    """Four digits after the point say more than any benchmark knows."""
    rows = {name: [round(one, 4) for one in values] for name, values in content["rows"].items()}
    return content | {"rows": rows}
