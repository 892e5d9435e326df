"""Time is an argument: one module knows how statements read a clock, one how Python does.

No test can move a time that is written into a statement, or read past ``sa_outbox/clock.py``. Each
exception has its reason here.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from sqlalchemy import BindParameter
from sqlalchemy.sql import visitors

from sa_outbox.clock import clock
from sa_outbox.consumer.connection.connections import Query
from sa_outbox.consumer.connection.statements import Statements
from sa_outbox.database.tables import tables
from sa_outbox.settings import Names

ROOT = Path(__file__).parent.parent.parent
MODULES = {
    path.relative_to(ROOT).as_posix(): ast.parse(path.read_text())
    for path in sorted((ROOT / "sa_outbox").rglob("*.py"))
}
STATEMENTS = {
    name: tree
    for name, tree in MODULES.items()
    if name.startswith("sa_outbox/sql/") and not name.startswith("sa_outbox/sql/server/")
}
_CLOCKS = r"clock_timestamp|statement_timestamp|transaction_timestamp|timeofday|now"
_CALLED = re.compile(
    rf"\b({_CLOCKS})\(\)|\b(current_(timestamp|time|date)|localtimestamp)\b", re.IGNORECASE
)

WRITES_A_CLOCK = {
    "sa_outbox/sql/server/times.py": "its home",
    "sa_outbox/database/tables.py": "column defaults: when a row was really written",
    "sa_outbox/migrations/v0001.py": "the DDL of these defaults",
    "sa_outbox/doctor/leftovers.py": "advice to a person, never run",
}
THE_SERVERS = {
    "sa_outbox/sql/log/holders.py": "how long transactions have been open",
    "sa_outbox/sql/people/doctor.py": "open transactions; how far the server's clock is from ours",
    "sa_outbox/sql/listener/suspects.py": "compared with created_at, which is a default",
}
LOCAL = {
    "sa_outbox/clock.py": "its home",
    "sa_outbox/webhooks.py": "another system verifies the time of a signature",
    "sa_outbox/relay/http/webhook.py": "a Retry-After is a time of the other side",
    "sa_outbox/relay/endpoints.py": "when a test event was made",
    "sa_outbox/cli/operator.py": "a process of its own, for a person who says '3 days ago'",
    "sa_outbox/demo/shop.py": "an invented payload",
}


def texts(tree: ast.Module) -> Iterator[str]:
    """Every string of a module but its docstrings."""
    documents = {
        id(each.value)
        for each in ast.walk(tree)
        if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant)
    }
    for each in ast.walk(tree):
        text = each.value if isinstance(each, ast.Constant) else None
        if isinstance(text, str) and id(each) not in documents:
            yield text


def attributes(tree: ast.Module, of: str) -> set[str]:
    """The attributes of what is called *of* there: ``func`` in ``sa.func.now()``."""
    return {
        each.attr
        for each in ast.walk(tree)
        if isinstance(each, ast.Attribute)
        and (each.value.attr if isinstance(each.value, ast.Attribute) else ast.unparse(each.value))
        == of
    }


def imports(tree: ast.Module, name: str) -> set[str]:
    return {
        each.module or ""
        for each in ast.walk(tree)
        if isinstance(each, ast.ImportFrom) and name in {alias.name for alias in each.names}
    }


def test_only_the_module_for_it_writes_a_clock_into_a_statement() -> None:
    functions = re.compile(_CLOCKS)
    found = {
        name
        for name, tree in MODULES.items()
        if any(_CALLED.search(each) for each in texts(tree))
        or any(functions.fullmatch(each) for each in attributes(tree, "func"))
    }

    assert found == WRITES_A_CLOCK.keys()


def test_the_clock_of_the_server_is_for_what_the_server_wrote() -> None:
    assert {name for name, tree in STATEMENTS.items() if imports(tree, "SERVER_NOW")} == (
        THE_SERVERS.keys()
    )


def test_every_statement_is_made_by_the_text_that_binds_its_time() -> None:
    wrong = {
        name: imports(tree, "text") - {"server.timed_text"} for name, tree in STATEMENTS.items()
    }
    # This one serves programs without SQLAlchemy, and has literals.
    assert wrong.pop("sa_outbox/sql/people/overview.py") == {"sqlalchemy"}

    assert {name: modules for name, modules in wrong.items() if modules} == {}


_PURE = re.compile(r"\bPure\b")
_MADE_FOR_IT = {"monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time"}
_OF_A_MODULE = {
    "anyio": {"current_time", "sleep"},
    "clock": {"now"},
    "date": {"today"},
    "datetime": {"now", "utcnow", "today"},
    "time": {"time", "time_ns", "gmtime", "localtime", "sleep"} | _MADE_FOR_IT,
}
"""What reads a clock, or waits for one, by the module or class that it is called on."""


def pure(modules: dict[str, ast.Module]) -> dict[str, ast.Module]:
    """Those whose docstring says so, and those of a room whose docstring does."""
    saying = {name for name, tree in modules.items() if _PURE.search(ast.get_docstring(tree) or "")}
    rooms = tuple(name.removesuffix("__init__.py") for name in saying if "__init__" in name)
    return {
        name: tree
        for name, tree in modules.items()
        if name in saying or (rooms and name.startswith(rooms))
    }


def reads_a_clock(tree: ast.Module) -> Iterator[str]:
    """Each call of one by its name. A parameter, ``self._clock()``, is not one."""
    for each in ast.walk(tree):
        match each:
            case ast.Call(func=ast.Name(id=name)) if name in _MADE_FOR_IT | {"time"}:
                yield f"{each.lineno}: {name}()"
            case ast.Call(func=ast.Attribute(value=ast.Name(id=of), attr=name)) if (
                name in _OF_A_MODULE.get(of, ())
            ):
                yield f"{each.lineno}: {of}.{name}()"
            case _:
                pass


def test_what_calls_itself_pure_reads_no_clock() -> None:
    found = {name: [*reads_a_clock(tree)] for name, tree in pure(MODULES).items()}

    assert len(found) > 30
    assert {name: calls for name, calls in found.items() if calls} == {}


def test_a_pure_module_that_reads_a_clock_is_found() -> None:
    sources = {
        "a.py": '"""Pure."""\nuntil = monotonic() + 1',
        "b.py": '"""Pure: no I/O."""\nasync def wait(): await anyio.sleep(1)',
        "c.py": '"""It waits."""\nuntil = monotonic() + 1',
        "room/__init__.py": '"""Arithmetic. Pure."""',
        "room/d.py": "at = datetime.now(UTC)",
        "room/e.py": "def wait(now, clock=monotonic): return clock() - now + self._clock()",
    }
    modules = {name: ast.parse(source) for name, source in sources.items()}

    found = {name for name, tree in pure(modules).items() if [*reads_a_clock(tree)]}

    assert found == {"a.py", "b.py", "room/d.py"}


def test_python_reads_the_clock_that_can_be_moved() -> None:
    found = {
        name for name, tree in MODULES.items() if {"now", "utcnow"} & attributes(tree, "datetime")
    }

    assert found == LOCAL.keys()


def queries(holder: object) -> Iterator[Query]:
    for each in vars(holder).values():
        if isinstance(each, Query):
            yield each
        elif type(each).__module__ == Statements.__module__:
            yield from queries(each)


def test_the_statements_of_a_consumer_read_their_time_when_they_are_run() -> None:
    made = list(queries(Statements(tables(Names()), "outbox")))
    timed = [each for each in made if "AS timestamptz), clock_timestamp())" in each.sql]
    frozen = []
    for query in timed:
        binds = [each for each in visitors.iterate(query.clause) if isinstance(each, BindParameter)]
        if clock.now not in [each.callable for each in binds if each.key == "now"]:
            frozen.append(query.sql)

    assert len(timed) > 20
    assert frozen == []
