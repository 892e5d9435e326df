"""What the pages say about speed is what the benchmarks wrote."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks import charts
from benchmarks.report import Table

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BENCHMARK = re.compile(r"\bbench_\w+")
RATE = re.compile(r"[\d,.]+ (?:events|commits|messages)(?:/s| per second)")
TIMES = re.compile(r"\d (?:times|x) (?:as (?:fast|quick)|faster|slower|graphile|pgqueuer)")


def test_the_page_shows_the_figures_of_the_results() -> None:
    page = charts.PAGE.read_text()

    assert charts.filled(page) == page, "make charts"


def test_the_charts_are_drawn_from_the_results() -> None:
    found = {path.name: path.read_text() for path in charts.IMAGES.glob("performance-*.svg")}

    assert found == charts.images(), "make charts"


def test_every_figure_that_was_kept_is_on_the_page() -> None:
    places = {place["key"] for place in charts.PLACE.finditer(charts.PAGE.read_text())}
    kept = {table.key for report in charts.reports() for table in report.tables}

    assert kept - places == set()


def test_a_changed_figure_changes_the_page_and_its_chart() -> None:
    report = next(each for each in charts.reports() if each.benchmark == "bench_consuming")
    table = report.tables[0]
    other = Table(
        key=table.key,
        title=table.title,
        columns=table.columns,
        rows={name: (values[0] + 1000, *values[1:]) for name, values in table.rows.items()},
    )

    assert charts.block(report, other) != charts.block(report, table)
    assert charts.chart(other, "events/s") != charts.chart(table, "events/s")


def test_a_benchmark_that_a_page_names_exists() -> None:
    missing = [
        f"{page.name}: {name}"
        for page in PAGES
        for name in BENCHMARK.findall(page.read_text())
        if not (ROOT / "benchmarks" / f"{name}.py").exists()
    ]

    assert missing == []


def test_no_other_page_has_rates_or_comparisons_of_its_own() -> None:
    found = [
        f"{page.name}: {claim.group()}"
        for page in PAGES
        if page != charts.PAGE
        for pattern in (RATE, TIMES)
        for claim in pattern.finditer(page.read_text())
    ]

    assert found == []
