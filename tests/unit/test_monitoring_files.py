"""The dashboard and the alert rules: they ask for metrics that exist."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path

import pytest
from click.testing import CliRunner

from sa_outbox.cli import main
from sa_outbox.monitoring.families import FAMILIES

SAMPLES = {
    f"{each.name}{suffix}"
    for each in FAMILIES
    for suffix in {
        "counter": ("_total",),
        "gauge": ("",),
        "histogram": ("_bucket", "_count", "_sum"),
    }[each.kind]
}
RULES_TEST = Path(__file__).parent.parent / "support" / "prometheus" / "alert-rules.test.yml"


def shown(what: str) -> str:
    result = CliRunner().invoke(main, ["monitoring", what])
    assert result.exit_code == 0, result.output
    return result.stdout


def asked(text: str) -> set[str]:
    return set(re.findall(r"\bsa_outbox_[a-z_]+\b", text))


def test_every_metric_of_the_dashboard_exists() -> None:
    board = json.loads(shown("grafana"))

    expressions = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    assert len(expressions) > 10
    assert all(asked(each) for each in expressions)
    variables = [each["definition"] for each in board["templating"]["list"] if "definition" in each]
    assert set().union(*map(asked, [*expressions, *variables])) <= SAMPLES
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


def test_every_metric_of_the_alert_rules_exists() -> None:
    expressions = re.findall(r"expr: (.*)", shown("alert-rules"))

    assert len(expressions) == shown("alert-rules").count("- alert:") == 9
    assert all(asked(each) for each in expressions)
    assert set().union(*map(asked, expressions)) <= SAMPLES


def test_the_thresholds_are_those_of_the_page() -> None:
    rules = shown("alert-rules")
    page = (Path(__file__).parents[2] / "docs" / "monitoring.md").read_text()

    told = dict(re.findall(r"^\| `(Outbox\w+)` \| (\w+) \|", page, re.MULTILINE))
    there = re.findall(r"- alert: (\w+).*?severity: (\w+)", rules, re.DOTALL)
    assert told == dict(there)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not on the PATH")
def test_prometheus_reads_the_rules_and_they_fire_at_their_thresholds(tmp_path: Path) -> None:
    (tmp_path / "alert-rules.yml").write_text(shown("alert-rules"))
    shutil.copy(RULES_TEST, tmp_path / "test.yml")

    for words in (["check", "rules", "alert-rules.yml"], ["test", "rules", "test.yml"]):
        done = subprocess.run(
            ["promtool", *words], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_files_are_inside_of_the_package() -> None:
    folder = files("sa_outbox").joinpath("monitoring", "files")

    assert {each.name for each in folder.iterdir()} == {"grafana.json", "alert-rules.yml"}
