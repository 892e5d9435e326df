"""What benchmarks make of their figures: goals beside other contestants, and parts on their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import bench_handlers, bench_long, bench_peers, charts, report
from benchmarks.environments import ALL
from benchmarks.measure import speeds
from benchmarks.report import Report, Table

KEY, TOTAL, NONE, GRAPHILE, PGQUEUER, EVENTSOURCING = (
    ALL[name].title for name in ("key", "total", "none", "graphile", "pgqueuer", "eventsourcing")
)


def verdicts(table: Table) -> dict[tuple[str, str], bool]:
    return {
        (goal.row, goal.column): goal.is_met(table.value(goal.row, goal.column))
        for goal in table.goals
    }


def test_a_backlog_has_goals_beside_peers_of_the_same_run() -> None:
    seconds = {KEY: 1.0, TOTAL: 1.2, NONE: 1.0, EVENTSOURCING: 2.0, GRAPHILE: 4.0}
    table = bench_peers.drains({name: [each] for name, each in seconds.items()}, 50_000)

    assert verdicts(table) == {
        (KEY, "to eventsourcing ratio"): True,  # 2.0
        (TOTAL, "to eventsourcing ratio"): False,  # 1.67
        (NONE, "to graphile ratio"): False,  # 4.0
    }


def test_latency_has_goals_beside_peers_of_the_same_run() -> None:
    seconds = {KEY: 0.5, NONE: 0.9, GRAPHILE: 0.6, PGQUEUER: 1.0}
    table = bench_peers.latency({name: [each] * 3 for name, each in seconds.items()}, 3)

    assert verdicts(table) == {
        (KEY, "to graphile ratio"): True,
        (KEY, "to pgqueuer ratio"): True,
        (NONE, "to graphile ratio"): False,
        (NONE, "to pgqueuer ratio"): True,
    }
    assert table.value(NONE, "to graphile ratio") == pytest.approx(1.5)


def test_a_peer_that_was_left_out_has_neither_goal_nor_column() -> None:
    table = bench_peers.drains({KEY: [1.0], NONE: [1.0], GRAPHILE: [2.0]}, 50_000)

    assert list(verdicts(table)) == [(NONE, "to graphile ratio")]
    assert "to eventsourcing ratio" not in table.columns


@pytest.mark.parametrize(
    ("key", "row"), [("handlers", "concurrency=8"), ("handlers-sync", "sync, concurrency=8")]
)
def test_eight_tasks_have_to_be_as_fast_as_eight_clients_by_hand(key: str, row: str) -> None:
    rows = {each.row for each in bench_handlers.goals(key)} - {row}
    times = {"by hand": [4.0], "eight clients by hand": [0.9], row: [1.0]}
    times |= {each: [2.0] for each in rows}
    beside = {bench_handlers.EIGHT: "eight clients by hand"}
    table = speeds(key, "", times, 1, goals=bench_handlers.goals(key), beside=beside)

    assert verdicts(table)[row, "ratio"]
    assert not verdicts(table)[row, bench_handlers.EIGHT]


def test_a_part_is_recorded_and_leaves_the_others_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    monkeypatch.setattr(charts, "RESULTS", tmp_path)
    table = Table(key="long-memory", title="memory", columns=("ratio",), rows={"all": (1.0,)})
    days = {"size": "2026-01-01", "memory": "2026-01-02"}
    for part, day in days.items():
        Report("bench_long", {"date": day}, [table], part).write()
    before = (tmp_path / "bench_long-size.json").read_text()

    Report("bench_long", {"date": "2026-01-03"}, [table], "memory").write()

    assert (tmp_path / "bench_long-size.json").read_text() == before
    assert {each.name: each.machine["date"] for each in charts.reports()} == {
        "bench_long --only memory": "2026-01-03",
        "bench_long --only size": "2026-01-01",
    }


def test_the_parts_of_the_long_benchmark_are_those_that_its_readers_are_told_of() -> None:
    assert bench_long.__doc__ is not None
    assert all(f"- {part}:" in bench_long.__doc__ for part in bench_long.PARTS)
