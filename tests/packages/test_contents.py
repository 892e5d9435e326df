"""What is in the wheel and in the source distribution."""

from __future__ import annotations

from email import message_from_string
from email.message import Message
from pathlib import Path
from zipfile import ZipFile

import pytest

import sa_outbox
from tests.support.packages import ROOT, build

from .conftest import Packages


def contents(wheel: Path) -> dict[str, bytes]:
    with ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture(scope="module")
def metadata(packages: Packages) -> Message:
    found = contents(packages.wheel)
    return message_from_string(
        next(text for name, text in found.items() if name.endswith("/METADATA")).decode()
    )


def test_the_wheel_has_every_file_of_the_package_and_nothing_else(packages: Packages) -> None:
    ours = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "sa_outbox").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    inside = {name for name in contents(packages.wheel) if ".dist-info/" not in name}

    assert inside == ours
    assert {
        "sa_outbox/py.typed",
        "sa_outbox/dashboard/static/dashboard.css",
        "sa_outbox/monitoring/files/alert-rules.yml",
        "sa_outbox/migrations/v0001.py",
    } <= inside


def test_the_wheel_has_the_command_the_plugin_and_the_licence(packages: Packages) -> None:
    about = f"sa_outbox-{sa_outbox.__version__}.dist-info"
    inside = contents(packages.wheel)

    assert b"sa-outbox = sa_outbox.cli:main" in inside[f"{about}/entry_points.txt"]
    assert b"sa_outbox = sa_outbox.testing.plugin" in inside[f"{about}/entry_points.txt"]
    assert inside[f"{about}/licenses/LICENSE"] == (ROOT / "LICENSE").read_bytes()


def test_the_source_distribution_gives_a_wheel_equal_to_that_of_the_tree(
    packages: Packages, tmp_path: Path
) -> None:
    of_sdist = build(packages.unpacked, "wheel", tmp_path)

    assert of_sdist.read_bytes() == packages.wheel.read_bytes()


def test_the_source_distribution_has_what_its_tests_and_its_readme_need(packages: Packages) -> None:
    inside = {path.name for path in packages.unpacked.iterdir()}

    assert {"alembic", "alembic.ini", "benchmarks", "docs", "sa_outbox", "tests"} <= inside
    assert {"Makefile", "hatch_build.py", "pyproject.toml", "zensical.toml"} <= inside
    assert {each.name for each in ROOT.glob("[A-Z]*")} <= inside


def test_the_wheel_says_what_it_is(metadata: Message) -> None:
    assert metadata["Name"] == "sa_outbox"
    assert metadata["Version"] == sa_outbox.__version__
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Description-Content-Type"] == "text/markdown"
