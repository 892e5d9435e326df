"""The documentation is run: what a page shows works, in the order in which it is read.

The ``python`` blocks of one page are one program. It runs with warnings as errors and has one thing
from us: ``DATABASE_URL``, the address of an empty database. What a reader need not see (imports, a
fixture, a further assert) stands in a comment that begins with ``hidden:`` and is part of the
program. A comment ``needs: flask`` names packages without which a page is not run. Other blocks are
not run; commands of ours in ``console`` blocks must exist.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import click
import pytest
from sqlalchemy import URL

from sa_outbox.cli import main as command_line

ROOT = Path(__file__).parents[2]
RECIPES = sorted((ROOT / "docs").glob("recipes/[!i]*.md"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *RECIPES]

# The page's own name for the file, and its text unchanged in length: a traceback names the line of
# the page and shows it.
RUN = "import sys; exec(compile(sys.stdin.read(), sys.argv.pop(), 'exec'))"
EXCERPTS = {
    "consuming", "handlers", "idempotency", "monitoring", "operating", "partitions", "producing",
    "relay-webhooks", "scheduling", "tenants", "testing",
}  # fmt: skip
"""Pages that show parts of a program, and hide the rest. All others show all that they use."""
NEEDS = re.compile(r"^<!-- needs: (.+) -->$", re.MULTILINE)
OPENING = re.compile(r"(?P<indent>[ >]*)(?P<fence>`{3,}|~{3,})(?P<language>\w*)")


@dataclass(frozen=True)
class Block:
    """A fenced block, or a hidden one; *first* is the line after its opening, counted from 0."""

    language: str
    first: int
    lines: tuple[str, ...]
    hidden: bool = False


def blocks(page: Path) -> Iterator[Block]:
    lines = page.read_text().splitlines()
    number = 0
    while number < len(lines):
        opening = OPENING.match(lines[number])
        hidden = lines[number] == "<!-- hidden:"
        number += 1
        if opening is None and not hidden:
            continue
        ending = "-->" if opening is None else opening["indent"] + opening["fence"]
        first = number
        while lines[number] != ending:
            number += 1
        language = "python" if opening is None else opening["language"]
        indented = opening is not None and opening["indent"] != ""
        assert not (indented and language == "python"), f"{page}:{first}: would not be run"
        yield Block(language, first, tuple(lines[first:number]), hidden)
        number += 1


def program(page: Path) -> str:
    """The page with everything blanked out that is not Python."""
    lines = [""] * len(page.read_text().splitlines())
    for block in blocks(page):
        if block.language == "python":
            lines[block.first : block.first + len(block.lines)] = block.lines
    return "\n".join(lines)


def shown(page: Path) -> dict[str, str]:
    """What a reader sees, by file: a block whose first line is ``# name.py`` begins one."""
    files: dict[str, str] = {}
    name = ""
    for block in blocks(page):
        if block.language == "python" and not block.hidden:
            if block.lines and re.fullmatch(r"# \S+\.py", block.lines[0]):
                name = block.lines[0]
            files[name] = files.get(name, "") + "\n".join(block.lines) + "\n"
    return files


def commands(page: Path) -> Iterator[str]:
    for block in blocks(page):
        if block.language == "console":
            for line in block.lines:
                if line.startswith("$ "):
                    yield from (each.strip() for each in re.split(r"[>|;&]+", line[2:]))


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.timeout(180)  # some pages start servers of their own
@pytest.mark.parametrize("page", [page for page in PAGES if program(page).strip()], ids=name_of)
def test_code_of_the_page_runs(page: Path, new_database: Callable[[], URL], tmp_path: Path) -> None:
    for names in NEEDS.findall(page.read_text()):
        for name in names.split(", "):
            pytest.importorskip(name)
    run_page(page, tmp_path, DATABASE_URL=new_database().render_as_string(hide_password=False))


def run_page(page: Path, folder: Path, **environment: str) -> None:
    answer = subprocess.run(
        [sys.executable, "-W", "error", "-c", RUN, str(page)],
        input=program(page),
        env={**os.environ, **environment},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )

    assert answer.returncode == 0, answer.stdout[-6000:] + answer.stderr
    # A warning raised where nothing can catch it is printed and changes no exit code.
    assert "Exception ignored" not in answer.stderr, answer.stderr
    assert "Warning" not in answer.stderr, answer.stderr


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.stem not in EXCERPTS and shown(page)], ids=name_of
)
def test_what_a_reader_sees_defines_every_name_that_it_uses(page: Path) -> None:
    for name, text in shown(page).items():
        answer = subprocess.run(
            [
                *(sys.executable, "-m", "ruff", "check", "--isolated", "--quiet"),
                *("--select", "F821", "--output-format", "concise", "-"),
            ],
            input=text,
            capture_output=True,
            text=True,
            check=False,
        )

        assert answer.returncode == 0, f"{name}: {answer.stdout}{answer.stderr}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_on_the_page_exist(page: Path) -> None:
    for command in commands(page):
        match shlex.split(command):
            case ["sa-outbox", *words] | ["python", "-m", "sa_outbox", *words]:
                check_command_line(words)
            case ["python", "-m", module, *words] if module.startswith("sa_outbox"):
                check_options(module, words)
            case ["make", target]:
                assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


def check_command_line(words: list[str]) -> None:
    # With the group's own settings: a command keeps the help option it was first asked for.
    context = click.Context(command_line, info_name="sa-outbox", **command_line.context_settings)
    command: click.Command = command_line
    while words and isinstance(command, click.Group) and not words[0].startswith("-"):
        found = command.get_command(context, words[0])
        assert found is not None, words
        command, context, words = found, click.Context(found, parent=context), words[1:]
    try:
        command.make_context(command.name, words, parent=context.parent)
    except click.exceptions.Exit:
        pass  # --help and --version
    except click.BadParameter as error:
        if error.param is None or not isinstance(error.param.type, click.File):
            raise
        # A file that the reader has, and we have not.


def check_options(module: str, words: list[str]) -> None:
    for word in words:
        assert not word.startswith("-") or word in help_of(module)


@cache
def help_of(module: str) -> str:
    return subprocess.run(
        [sys.executable, "-m", module, "--help"], capture_output=True, text=True, check=True
    ).stdout
