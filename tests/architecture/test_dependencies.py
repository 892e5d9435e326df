"""What is asked of others: nothing that has known holes, and nothing by surprise."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from sa_outbox.embedded import binaries

EXTRAS: dict[str, list[str]] = tomllib.loads(
    (Path(__file__).parents[2] / "pyproject.toml").read_text()
)["project"]["optional-dependencies"]


@pytest.mark.parametrize(
    ("extra", "needed"),
    [
        ("http", "cryptography>=46"),
        ("http", "h11>=0.16"),
        ("http", "httpcore2>=2.0,<3"),
        ("dashboard", "starlette>=0.49.1"),
        ("dashboard", "h11>=0.16"),
    ],
)
def test_what_has_known_holes_is_not_taken(extra: str, needed: str) -> None:
    assert needed in EXTRAS[extra]


def test_a_server_of_somebody_else_is_one_exact_version_and_taken_on_purpose() -> None:
    wheel, is_exactly, version = EXTRAS["embedded"][0].partition("==")
    assert (is_exactly, version.count("*")) == ("==", 0)
    assert wheel.replace("-", "_") in binaries._WHEELS
    assert not any("embedded" in each or wheel in each for each in EXTRAS["all"])


def test_all_has_every_other_extra_that_users_want() -> None:
    named = EXTRAS["all"][0].removeprefix("sa_outbox[").removesuffix("]").split(",")
    assert sorted(named) == sorted(set(EXTRAS) - {"all", "dev", "docs", "embedded"})
