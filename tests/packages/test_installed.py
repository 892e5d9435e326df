"""Wheel and sdist in an environment that has nothing else, on every interpreter to be tested."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.version import Version

from sa_outbox import __version__
from sa_outbox.embedded import binaries
from tests.docs.test_code_blocks import program
from tests.support.packages import ROOT, Environment, constraints, environment, pythons, run

from .conftest import Packages

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

NEEDS_NO_EXTRA = """
import sa_outbox, sa_outbox.cli, sa_outbox.consume, sa_outbox.consumer, sa_outbox.demo
import sa_outbox.doctor, sa_outbox.embedded, sa_outbox.operations, sa_outbox.schema
import sa_outbox.webhooks
from importlib.metadata import distributions
print(sa_outbox.__file__)
print(*sorted({f"{each.name.lower()}=={each.version}" for each in distributions()}))
"""
DEMO_WITHOUT_A_SERVER = """
import sys
from sa_outbox.cli import main
from sa_outbox.embedded import binaries
binaries._of_system = lambda: iter(())  # this machine may have one
sys.argv = ["sa-outbox", "demo"]
main()
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """Open to the account that runs PostgreSQL for root."""
    with tempfile.TemporaryDirectory(prefix="installed-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.parametrize("python", pythons())
@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_what_is_uploaded_works_with_what_it_depends_on_and_nothing_else(
    kind: str, python: str, packages: Packages, folder: Path
) -> None:
    """One test, for the environment is what takes the time."""
    package = packages.wheel if kind == "wheel" else packages.sdist
    installed = environment(folder / "environment", package, python=python)

    imports_its_modules(installed)
    has_its_command(installed)
    says_what_the_demo_lacks(installed)
    runs_the_program_of_the_readme(installed)


def imports_its_modules(installed: Environment) -> None:
    where, listed = installed.run("-c", NEEDS_NO_EXTRA).splitlines()
    versions = dict(each.split("==") for each in listed.split())

    assert Path(where).is_relative_to(installed.folder)
    assert {"alembic", "anyio", "asyncpg", "click", "sa_outbox", "sqlalchemy"} <= versions.keys()
    assert not {"pip", "pytest", "rich", "starlette", "uvloop"} & versions.keys()
    wanted = {name: asked for name, asked in constraints().items() if name in versions}
    assert [
        (name, versions[name], asked)
        for name, asked in wanted.items()
        if Version(versions[name]) != Version(asked)
    ] == []


def has_its_command(installed: Environment) -> None:
    command = installed.folder / "bin" / "sa-outbox"

    assert "migrate" in run(command, "--help", cwd=installed.folder)
    assert __version__ in run(command, "--version", cwd=installed.folder)


def says_what_the_demo_lacks(installed: Environment) -> None:
    done = subprocess.run(
        [installed.python, "-c", DEMO_WITHOUT_A_SERVER],
        cwd=installed.folder,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 1
    assert 'pip install "sa_outbox[embedded]"' in done.stderr
    assert "Traceback" not in done.stderr


def runs_the_program_of_the_readme(installed: Environment) -> None:
    (installed.folder / "shop.py").write_text(program(ROOT / "README.md"))

    answer = installed.run("shop.py", **{binaries.BINDIR_VARIABLE: str(binaries.find_binaries())})

    assert answer == "[1]\n"


def test_the_program_of_the_readme_has_types_as_a_user_checks_them(
    packages: Packages, folder: Path
) -> None:
    """Without our configuration, with the wheel, and with no package that only the extras have."""
    installed = environment(folder / "environment", packages.wheel)
    (folder / "shop.py").write_text(program(ROOT / "README.md"))
    checker = (sys.executable, "-m", "mypy", "--strict", "--python-executable", installed.python)

    assert "Success" in run(*checker, "shop.py", cwd=folder)
