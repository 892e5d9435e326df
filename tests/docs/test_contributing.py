"""CONTRIBUTING.md leads to files that exist, and to commands that do something."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text()

FOLDERS = ("sa_outbox", "alembic", "tests", "benchmarks", "docs")
QUOTED = re.compile(r"`([^`\n]+)`")
IN_A_COMMAND = re.compile(r"(?<=\s)(?:" + "|".join(FOLDERS) + r")/\S+")
TYPICAL_CHANGES = 12


def paths(text: str) -> set[str]:
    """Whatever has a slash or an ending; ``module.attribute`` and commands have neither."""
    quoted = {
        each
        for each in QUOTED.findall(text)
        if re.fullmatch(r"\.?[\w./-]*(/[\w./-]*|\.(py|md|toml|json|yml))", each)
    }
    commands = {
        path
        for line in text.splitlines()
        if line.startswith("$ ")
        for path in IN_A_COMMAND.findall(line)
    }
    return {each for each in quoted | commands if not each.startswith("/")}


def test_every_path_that_is_named_exists() -> None:
    missing = sorted(each for each in paths(PAGE) if not (ROOT / each).exists())

    assert missing == []


def test_functions_named_beside_a_path_are_in_that_file() -> None:
    beside = re.findall(r"`([\w./]+\.py)`\s+\(`(\w+)`[,)]", PAGE)
    missing = [
        (path, name)
        for path, name in beside
        if not re.search(rf"\b{name}\b", (ROOT / path).read_text())
    ]

    assert len(beside) >= 5
    assert missing == []


def test_every_make_target_that_is_named_exists() -> None:
    targets = set(re.findall(r"make ([a-z-]+)", " ".join(QUOTED.findall(PAGE))))
    targets |= set(re.findall(r"^\$ make ([a-z-]+)", PAGE, re.MULTILINE))
    makefile = (ROOT / "Makefile").read_text()

    assert {"check", "map", "test"} <= targets
    assert [each for each in targets if f"\n{each}:" not in makefile] == []


def changes() -> dict[str, set[str]]:
    """The typical changes, each with the files that it touches."""
    _, _, after = PAGE.partition("## Twelve typical changes\n")
    section = after.partition("\n## ")[0]
    found = re.findall(r"^\*\*(.+?)\.\*\*(.*(?:\n.+)*)", section, re.MULTILINE)
    return {title: paths(text) for title, text in found}


def test_the_typical_changes_are_as_many_as_the_heading_says() -> None:
    assert len(changes()) == TYPICAL_CHANGES
    assert [title for title, files in changes().items() if not files] == []


RENEWAL = "The renewal of leases"


def test_the_renewal_of_leases_is_in_four_files() -> None:
    assert len(changes()[RENEWAL]) == 4


@pytest.mark.parametrize(
    "written",
    [
        r"lease_expires_at = clock_timestamp\(\)",
        r"make_interval\(secs => :duration\)",
        r"lease_duration\.total_seconds\(\) /",
        r"\.is_contradicted_by\(",
    ],
)
def test_nothing_that_renews_a_lease_is_written_elsewhere(written: str) -> None:
    code = (path.relative_to(ROOT).as_posix() for path in (ROOT / "sa_outbox").rglob("*.py"))
    found = {each for each in code if re.search(written, (ROOT / each).read_text())}

    assert found <= changes()[RENEWAL]


def test_paths_are_found_in_prose_and_in_commands() -> None:
    text = "`a/b.py` `c/` `x.y` `make check` `pyproject.toml` `/usr/lib`\n$ pytest tests/unit -k a"

    assert paths(text) == {"a/b.py", "c/", "pyproject.toml", "tests/unit"}


def files_of(title: str) -> set[str]:
    """The files that a typical change touches."""
    found = re.search(rf"^\*\*{title}\.\*\*(.*(?:\n.+)*)", PAGE, re.MULTILINE)
    assert found, title
    return paths(found[1])


def test_whoever_asks_what_an_order_means_is_named_where_modes_are_added() -> None:
    asking = re.compile(r"\border_mode\b|\bORDER_MODES\b")
    found = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "sa_outbox").rglob("*.py")
        if asking.search(path.read_text())
    }

    assert found == files_of("An order mode")


def test_an_option_of_a_listener_is_declared_in_one_file() -> None:
    """Who else has its name honours it: the listener has it as an attribute."""
    declared = re.compile(r'^ +"?(gap_wait|tenant_rate|cancellable)"?: ', re.MULTILINE)
    found = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "sa_outbox").rglob("*.py")
        if declared.search(path.read_text())
    }

    assert found == {"sa_outbox/declare/listener.py"}
    assert found <= files_of("A setting of a listener")
    assert len(files_of("A setting of a listener")) == 3  # and the module that honours it


def test_an_option_of_endpoints_is_taken_by_commands_in_one_file() -> None:
    taken = re.compile(r"probe[-_]interval|retry[-_]410")
    found = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "sa_outbox" / "cli").rglob("*.py")
        if taken.search(path.read_text())
    }

    assert found == {"sa_outbox/cli/endpoint_options.py"}
    assert found <= files_of("A setting of a listener")
