"""The shape of the source: what import contracts can't see."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TypeGuard

import pytest

ROOT = Path(__file__).parent.parent.parent
PACKAGE = ROOT / "sa_outbox"
MODULES = sorted(path.relative_to(ROOT).as_posix() for path in PACKAGE.rglob("*.py"))

LONGEST_MODULE = 300
LONGEST_FUNCTION = 60

LONG_MODULES = {
    "sa_outbox/errors.py": "every error with its picture: few statements, much to say",
    "sa_outbox/observe.py": "every observation: few statements, much to say",
    "sa_outbox/database/tables.py": "every table, one function each",
    "sa_outbox/migrations/v0001.py": "frozen DDL of every table, one function per table; a release"
    " never edits it, so it has one reason to exist and none to change",
    "sa_outbox/embedded/supervisor.py": "a program of its own that runs without the package"
    " around it: what it needs stands in one file",
}
LONG_FUNCTIONS: dict[str, str] = {
    "sa_outbox/sql/people/status.py:status": "one statement, for one snapshot of six tables",
}
"""``module:function`` to the reason why it is one function."""

SQL_HOMES = ("sa_outbox/sql/", "sa_outbox/migrations/")
WITHOUT_SQL = [module for module in MODULES if not module.startswith(SQL_HOMES)]
SQL_ELSEWHERE = {
    "sa_outbox/database/faults.py": "GRANT: advice to a person in an error, never run",
    "sa_outbox/schema/inspection.py": "GRANT, ALTER, CREATE: advice to a person, never run",
    "sa_outbox/schema/consumer_rights.py": "ALTER: advice to a person, never run",
    "sa_outbox/schema/grants.py": "GRANT: printed for a person, never run",
    "sa_outbox/doctor/interference.py": "ALTER: advice to a person, never run",
    "sa_outbox/doctor/storage.py": "ALTER: advice to a person, never run",
    "sa_outbox/doctor/home.py": "GRANT: advice to a person, never run",
    "sa_outbox/doctor/leftovers.py": "DELETE: advice to a person, never run",
}
RUN_AS_TEXT = {
    "sa_outbox/consumer/transaction/lent_session.py": "runs what sql/ has built, rendered",
    "sa_outbox/schema/apply.py": "runs the frozen DDL, which sa_outbox/migrations holds as text",
}
_SQL = re.compile(
    r"\b(SELECT\s+\S+.*\bFROM|INSERT\s+INTO|UPDATE\s+\S+\s+SET|DELETE\s+FROM|TRUNCATE\s+TABLE"
    r"|CREATE\s+(TABLE|INDEX|SCHEMA|FUNCTION)|ALTER\s+(TABLE|SEQUENCE)|DROP\s+(TABLE|SCHEMA)"
    r"|GRANT\s+\w+\s+ON|LISTEN\s+[\"{]|NOTIFY\s+[\"{])",
    re.DOTALL,
)

WRONG_WORDS = {
    "bookmark": "cursor",
    "callback": "handler",
    "checkpoint": "cursor",
    "daemonize": "consumer",
    "job": "delivery",
    "jobs": "delivery",
    "offset": "position",
    "poison": "dead letter",
    "processor": "listener",
    "publisher": "relay",
    "requeue": "retry",
    "sink": "relay",
    "snooze": "retry",
    "subscriber": "listener",
    "subscribers": "listener",
    "telemetry": "observation",
    "topic": "event type",
    "watermark": "horizon",
    "worker": "consumer",
    "workers": "consumer",
}
"""A word that is another concept's, or nobody's, to the glossary's word. ``message`` is not among
them: an error has one, and the inbox stores other systems' ``message_id``."""

WRONG_VERBS = ("get_", "process_", "handle_", "do_", "manage_")
THEIR_NAMES = {
    "get_bind",
    "get_command",
    "get_extra_info",
    "get_invalid_choice_message",
    "get_section",
    "get_x_argument",
    "handle_exit",
    "get_main_option",
    "do_connect",
}
"""Of SQLAlchemy, Alembic, click and uvicorn, where we implement or replace them."""

OWN_ATTRIBUTES = re.compile(
    r"sa_outbox/consumer/((idle|lease|services|shared|upkeep|work)/.+|(drain|supervisor)\.py)"
)
"""Where objects write their own attributes only. Elsewhere, an event in flight is filled in by
whoever decides about it."""
SCOPES = {"scope", "self._scope"}
"""anyio's, whose deadline and shield are made to be set."""

BY_NAME = {"tests/postgres/test_notifier.py": "a name that has to be resolved is the subject"}
SLEEPS = {
    "tests/support/__init__.py": "eventually(): looks again until it is true",
    "tests/postgres/test_notifier.py": "looks again until it is true; the pace of a burst",
    "tests/crash/effects_app.py": "how long a handler takes is the scenario",
    "tests/crash/queue_app.py": "how long a handler takes is the scenario",
    "tests/crash/deadly_app.py": "how long a handler takes is the scenario",
    "tests/postgres/consumer/test_alone_in_the_process.py": "how long one takes is the scenario",
    "tests/postgres/consumer/test_giving_way.py": "a handler that computes is the scenario",
    "tests/postgres/consumer/test_idle.py": "what must not happen for a while is the subject",
    "tests/browser/shop.py": "how long handlers and customers take is the scenario",
    "tests/browser/screenshots.py": "no test: a shop runs for a while before it is photographed",
    "tests/support/endpoint.py": "how slowly a server answers is the scenario",
    "tests/support/writers.py": "how long writers pause in their transactions is the scenario",
}
"""Files that call sleep, and why none of these calls waits for an effect."""

VAGUE_MODULES = {"utils", "util", "helpers", "common", "base", "misc"}


@cache
def parsed(module: str) -> ast.Module:
    return ast.parse((ROOT / module).read_text(), module)


def identifiers(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Every name that this tree itself chooses: not the attributes of other objects it reads."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name, node.lineno
            case ast.arg():
                yield node.arg, node.lineno
            case ast.Name(ctx=ast.Store()):
                yield node.id, node.lineno
            case ast.Attribute(ctx=ast.Store()):
                yield node.attr, node.lineno
            case ast.alias(asname=str(name)):
                yield name, node.lineno
            case ast.ExceptHandler(name=str(name)):
                yield name, node.lineno
            case _:
                pass


def words(identifier: str) -> list[str]:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", identifier).lower().split("_")


def functions(module: str) -> Iterator[tuple[str, int]]:
    for node in ast.walk(parsed(module)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            assert node.end_lineno is not None
            yield f"{module}:{node.name}", node.end_lineno - node.lineno + 1


def strings(module: str) -> Iterator[tuple[str, int]]:
    """Text of the module but its docstrings, which speak about SQL and run none."""
    tree = parsed(module)
    prose = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            yield node.value, node.lineno


@cache
def tracked_files() -> list[str]:
    """Files that are, or would be, in the repository."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode != 0:
        pytest.skip("not a repository of git: an unpacked source distribution")
    return [name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


class TestSize:
    def test_a_module_fits_into_one_head(self) -> None:
        lengths = {each: len((ROOT / each).read_text().splitlines()) for each in MODULES}
        too_long = {each: length for each, length in lengths.items() if length > LONGEST_MODULE}

        assert too_long.keys() <= LONG_MODULES.keys(), too_long

    def test_a_function_fits_onto_one_screen(self) -> None:
        lengths = dict(each for module in MODULES for each in functions(module))
        too_long = {name: length for name, length in lengths.items() if length > LONGEST_FUNCTION}

        assert too_long.keys() <= LONG_FUNCTIONS.keys(), too_long

    def test_every_exception_is_still_needed_and_has_a_reason(self) -> None:
        for module, reason in LONG_MODULES.items():
            assert len((ROOT / module).read_text().splitlines()) > LONGEST_MODULE, module
            assert len(reason) > 20
        lengths = dict(each for module in MODULES for each in functions(module))
        for function, reason in LONG_FUNCTIONS.items():
            assert lengths[function] > LONGEST_FUNCTION, function
            assert len(reason) > 20


class TestSql:
    def test_text_is_used_only_where_statements_are_built(self) -> None:
        found = [
            f"{module}:{node.lineno}"
            for module in WITHOUT_SQL
            if module not in RUN_AS_TEXT
            for node in ast.walk(parsed(module))
            if makes_text(node)
        ]

        assert found == []

    def test_no_string_elsewhere_is_sql(self) -> None:
        found = [
            f"{module}:{line} {text[:60]}"
            for module in WITHOUT_SQL
            if module not in SQL_ELSEWHERE
            for text, line in strings(module)
            if _SQL.search(text)
        ]

        assert found == []

    def test_what_makes_text_is_found(self) -> None:
        source = "from sqlalchemy import text\ntext('a')\nconnection.exec_driver_sql('a')\nx.y('a')"

        lines = [node.lineno for node in ast.walk(ast.parse(source)) if makes_text(node)]

        assert sorted(lines) == [1, 2, 3]

    def test_every_exception_is_still_needed(self) -> None:
        for module in SQL_ELSEWHERE:
            assert any(_SQL.search(text) for text, _ in strings(module)), module
        for module in RUN_AS_TEXT:
            assert "exec_driver_sql" in (ROOT / module).read_text(), module


def makes_text(node: ast.AST) -> TypeGuard[ast.Call | ast.ImportFrom]:
    match node:
        case ast.Call(func=ast.Name(id="text")):
            return True
        case ast.Call(func=ast.Attribute(attr="text" | "exec_driver_sql" | "literal_column")):
            return True
        case ast.ImportFrom(module=str(module), names=names) if module.startswith("sqlalchemy"):
            return any(alias.name in {"text", "literal_column", "DDL"} for alias in names)
        case _:
            return False


class TestVocabulary:
    def test_one_word_per_concept(self) -> None:
        wrong = [
            f"{module}:{line} {name}: say {WRONG_WORDS[word]}"
            for module in MODULES
            for name, line in identifiers(parsed(module))
            for word in words(name)
            if word in WRONG_WORDS
        ]

        assert wrong == []

    def test_a_function_is_named_by_a_verb_that_says_something(self) -> None:
        wrong = [
            f"{module}:{node.lineno} {node.name}"
            for module in MODULES
            for node in ast.walk(parsed(module))
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            and node.name.lstrip("_").startswith(WRONG_VERBS)
            and node.name not in THEIR_NAMES
        ]

        assert wrong == []

    def test_a_module_is_named_for_what_it_holds(self) -> None:
        vague = [each for each in MODULES if set(Path(each).with_suffix("").parts) & VAGUE_MODULES]

        assert vague == []

    def test_a_module_says_what_it_is_for(self) -> None:
        silent = [each for each in MODULES if not ast.get_docstring(parsed(each))]

        assert silent == ["sa_outbox/_version.py"]

    def test_the_words_of_a_name_are_found(self) -> None:
        assert words("JobOffset_checkpoint") == ["job", "offset", "checkpoint"]
        tree = ast.parse("def f(offset): x.job = 1\nfor worker in y.sink: pass\n")
        assert [name for name, _ in identifiers(tree)] == ["f", "worker", "offset", "job"]


class TestObjects:
    def test_nobody_writes_the_attributes_of_another_object(self) -> None:
        found = [
            f"{module}:{node.lineno} {ast.unparse(node)}"
            for module in MODULES
            if OWN_ATTRIBUTES.fullmatch(module)
            for node in ast.walk(parsed(module))
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
            if ast.unparse(node.value) not in {"self", *SCOPES}
        ]

        assert found == []


class TestRepository:
    def test_alembic_has_no_init_file(self) -> None:
        """It would make a package of the folder and hide the real alembic."""
        assert list((ROOT / "alembic").rglob("__init__.py")) == []

    def test_the_package_is_marked_as_typed(self) -> None:
        assert (PACKAGE / "py.typed").is_file()

    def test_no_file_names_a_place_of_one_machine(self) -> None:
        # Put together, so that this file is not its own finding.
        places = re.compile(
            rb"(?<![\w.~*-])/(" + rb"|".join([b"root", b"work", b"home"]) + rb")/[\w.]"
        )
        found = [
            f"{name}: {line[:100]!r}"
            for name in tracked_files()
            for line in (ROOT / name).read_bytes().splitlines()
            if places.search(line)
        ]

        assert found == []

    def test_the_machine_is_addressed_by_its_number(self) -> None:
        """A name may lead to ::1 first, where nothing listens, or to nothing at all."""
        name_of_the_machine = re.compile(rb"(@|//|host=|=\s*\"|\(\")" + b"local" + b"host" + rb"\b")
        found = [
            f"{name}: {line[:100]!r}"
            for name in tracked_files()
            if name.endswith((".py", ".toml", ".ini", ".md", ".yml", ".mako"))
            and name not in BY_NAME
            for line in (ROOT / name).read_bytes().splitlines()
            if name_of_the_machine.search(line)
        ]

        assert found == []

    def test_nobody_counts_the_columns_of_a_row(self) -> None:
        counted = re.compile(r"\brow\[-?\d+\]|\brows\[-?\d+\]\[-?\d+\]")
        found = [
            f"{name}: {line.strip()}"
            for name in MODULES
            for line in (ROOT / name).read_text().splitlines()
            if counted.search(line)
        ]

        assert found == []

    def test_no_test_sleeps_to_wait_for_an_effect(self) -> None:
        found = [
            f"{name}:{node.lineno}"
            for name in tracked_files()
            if name.startswith("tests/") and name.endswith(".py") and name not in SLEEPS
            for node in ast.walk(parsed(name))
            if isinstance(node, ast.Call) and sleeps(node)
        ]

        assert found == []


def sleeps(call: ast.Call) -> bool:
    """Not ``sleep(0)``, which gives way to others and waits for nothing."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ast.unparse(call.func)
    return name == "sleep" and [ast.unparse(each) for each in call.args] != ["0"]
