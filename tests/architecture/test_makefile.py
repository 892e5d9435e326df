"""Which target installs what: no more than it needs, and nothing twice."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def installs(target: str, environment: Path) -> set[str]:
    """What the target would give to pip, in this environment."""
    told = subprocess.run(
        ["make", "--dry-run", target, f"VENV={environment}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return set(re.findall(r'pip install .*"\.\[(\w+)\]"', told.stdout))


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    return tmp_path


def install(environment: Path, *stamps: str) -> None:
    for stamp in stamps:
        (environment / stamp).touch()


def test_the_demo_installs_only_what_it_needs(environment: Path) -> None:
    assert installs("demo", environment) == {"embedded"}


def test_the_tests_install_what_they_need_after_the_demo(environment: Path) -> None:
    install(environment, ".demo-installed")

    assert installs("demo", environment) == set()
    assert installs("check", environment) == {"dev"}


def test_the_demo_installs_nothing_after_the_tests(environment: Path) -> None:
    rules = subprocess.run(
        ["make", "--dry-run", "check", f"VENV={environment}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    stamps = re.search(r"^touch (.+)$", rules.stdout, re.MULTILINE)
    assert stamps
    install(environment, *(Path(each).name for each in stamps[1].split()))

    assert installs("check", environment) == set()
    assert installs("demo", environment) == set()
