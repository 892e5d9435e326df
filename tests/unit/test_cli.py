"""The command line, as far as it needs no database."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest
from click.testing import CliRunner

from sa_outbox import __version__, migrations
from sa_outbox.cli import COMMANDS, main
from sa_outbox.cli.answers import NearChoice, called, counted
from sa_outbox.settings import Names
from tests.support.commands import commands_of

if TYPE_CHECKING:
    from click.testing import Result


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "SA_OUTBOX_DATABASE_URL",
        "DATABASE_URL",
        "SA_OUTBOX_SCHEMA",
        "SA_OUTBOX_PREFIX",
        "ALEMBIC_CONFIG",
    ):
        monkeypatch.delenv(name, raising=False)


def run(*words: str) -> Result:
    return CliRunner().invoke(main, list(words))


def test_it_tells_its_version() -> None:
    result = run("--version")
    assert result.exit_code == 0
    assert result.stdout == f"sa-outbox, version {__version__}\n"


def test_its_help_shows_the_commands_with_examples() -> None:
    text = run("--help").stdout
    for word in ("migrate", "revision", "verify", "sa-outbox migrate\n", "alembic upgrade head"):
        assert word in text


def test_its_help_shows_every_command_once_in_a_section() -> None:
    text = run("--help").stdout
    for section in ("Set up:", "Run:", "Inspect:", "Inspect and repair:"):
        assert f"\n{section}\n" in text
    listed = text.partition("\nSet up:\n")[2]
    assert sorted(re.findall(r"^  ([a-z-]+)  ", listed, re.MULTILINE)) == sorted(COMMANDS)


def test_each_command_says_what_it_does_in_one_line_of_80_columns() -> None:
    context = click.Context(main)
    groups = [name for name in COMMANDS if isinstance(main.get_command(context, name), click.Group)]
    assert len(groups) > 5
    for words in ([], *([name] for name in groups)):
        help_ = CliRunner().invoke(main, [*words, "--help"], terminal_width=80).stdout
        assert [line for line in help_.splitlines()[1:] if line.endswith("...")] == []


@pytest.mark.parametrize("command", ["migrate", "verify", "revision", "repartition", "prune"])
def test_every_command_has_help(command: str) -> None:
    for word in ("--help", "-h"):
        result = run(command, word)
        assert result.exit_code == 0
        assert "SA_OUTBOX_SCHEMA" in result.stdout


def test_the_demo_says_that_it_starts_before_it_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sa_outbox.demo", None)
    result = run("demo")
    assert isinstance(result.exception, ImportError)
    assert result.stdout == "Starting an embedded PostgreSQL ...\n"


def test_the_help_says_where_a_password_belongs() -> None:
    assert "environment" in run("migrate", "--help").stdout


@pytest.mark.parametrize("command", ["migrate", "verify"])
def test_without_a_database_it_says_how_to_name_one(command: str) -> None:
    result = run(command)
    assert result.exit_code == 2
    assert "Set DATABASE_URL" in result.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["--schema", 'x"; DROP TABLE y; --'],
        ["--prefix", "a b"],
        ["--prefix", "p" * 40],
        ["--to", str(migrations.LATEST + 1)],
        ["--to", "-1"],
        ["--nonsense"],
    ],
)
def test_wrong_usage_is_exit_code_two(words: list[str]) -> None:
    for more in (["--sql"], ["--database-url", "postgresql://u@h/d"]):
        result = run("migrate", *more, *words)
        assert result.exit_code == 2
        assert isinstance(result.exception, SystemExit)


@pytest.mark.parametrize(
    "address", ["nonsense-geheim", "mysql://u:geheim@h/d", "postgresql://u:geheim@h:x/d"]
)
@pytest.mark.parametrize("command", ["migrate", "verify"])
def test_a_wrong_address_is_refused_without_repeating_it(command: str, address: str) -> None:
    result = run(command, "--database-url", address)
    assert result.exit_code == 2
    assert isinstance(result.exception, SystemExit)
    assert "geheim" not in result.output


def test_sql_is_printed_as_one_transaction() -> None:
    result = run("migrate", "--sql", "--schema", "events", "--prefix", "ob")

    statements = migrations.statements(since=0, to=1, schema="events", prefix="ob")
    assert result.exit_code == 0
    assert result.stdout == "".join(f"{each};\n\n" for each in ("BEGIN", *statements, "COMMIT"))


def test_revision_without_a_configuration_says_so(tmp_path: Path) -> None:
    result = run("revision", "--config", str(tmp_path / "alembic.ini"))
    assert result.exit_code == 2
    assert "alembic init" in result.stderr


def test_revision_with_a_broken_configuration_says_so(tmp_path: Path) -> None:
    config = tmp_path / "alembic.ini"
    config.write_text("[alembic]\nscript_location = nowhere\npath_separator = os\n")
    result = run("revision", "--config", str(config))
    assert result.exit_code == 2
    assert isinstance(result.exception, SystemExit)
    assert "alembic can't read the history" in " ".join(result.stderr.split())


BY_CLICK = pytest.mark.skipif(
    not hasattr(click.exceptions, "NoSuchCommand"), reason="this click looks for no near word"
)


@pytest.mark.parametrize(
    ("words", "near"),
    [
        (["stauts"], "'status'"),
        (["dead-leters", "list"], "'dead-letters'"),
        pytest.param(["dead-letters", "lits"], "'list'", marks=BY_CLICK),
        pytest.param(["migrate", "--shcema", "x"], "--schema", marks=BY_CLICK),
        (["doctor", "--ignore", "tls-unverifed"], "'tls-unverified'"),
        (["grants", "consmer"], "'consumer'"),
        (["dead-letters", "list", "--reason", "attemps"], "'attempts'"),
    ],
)
def test_a_typo_gets_the_near_word(words: list[str], near: str) -> None:
    result = run(*words)
    assert result.exit_code == 2
    assert "did you mean" in result.stderr.lower()
    assert near in result.stderr


def test_every_choice_gets_the_near_word() -> None:
    plain = [
        f"{' '.join(words)} {each.name}"
        for words, command in commands_of(main)
        for each in command.params
        if isinstance(each.type, click.Choice) and not isinstance(each.type, NearChoice)
    ]

    assert plain == []


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [
        (0, "event", "0 events"),
        (1, "dead letter", "1 dead letter"),
        (2, "delivery", "2 deliveries"),
        (2, "idempotency key", "2 idempotency keys"),
        (1234, "row", "1,234 rows"),
    ],
)
def test_one_is_singular(count: int, noun: str, text: str) -> None:
    assert counted(count, noun) == text


def test_an_outbox_is_called_by_its_name_unless_it_has_the_usual_one() -> None:
    assert called(Names()) == "outbox"
    assert called(Names(prefix="ob")) == "outbox ob"
    assert called(Names(schema="events")) == "outbox events.outbox"
