"""What `make test-lowest` installs: the floors of pyproject.toml, and nothing that has none."""

from __future__ import annotations

import tomllib
from pathlib import Path

from tests.support.lowest import TOOLS, lowest, requirements

ROOT = Path(__file__).parents[2]
PYPROJECT = (ROOT / "pyproject.toml").read_text()


def test_every_dependency_and_every_extra_is_tested_with_its_lowest_version() -> None:
    project = tomllib.loads(PYPROJECT)["project"]
    extras = project["optional-dependencies"]
    for_users = [
        each for name in extras if name not in ("all", "dev", "docs") for each in extras[name]
    ]
    names = {found["name"] for found in requirements(PYPROJECT)}

    asked = {each.split(">")[0].split("=")[0].split("[")[0] for each in for_users}
    asked |= {each.split(">")[0].split("[")[0] for each in project["dependencies"]}
    assert len(asked) > 15
    assert asked <= names
    assert not TOOLS & asked


def test_a_constraint_has_no_extra_and_a_requirement_has() -> None:
    assert any(each.startswith("sqlalchemy==") for each in lowest(PYPROJECT, with_extras=False))
    assert any(each.startswith("sqlalchemy[") for each in lowest(PYPROJECT, with_extras=True))


def test_each_tool_that_is_left_out_is_one_that_is_asked_for() -> None:
    extras = tomllib.loads(PYPROJECT)["project"]["optional-dependencies"]
    asked = {
        each.split(">")[0].split("=")[0].split("[")[0] for each in extras["dev"] + extras["docs"]
    }

    assert asked >= TOOLS
