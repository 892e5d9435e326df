"""An option of a listener: what users write, the field it becomes, and its line on the page."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, get_type_hints

from sa_outbox import RetryPolicy
from sa_outbox.cli.endpoints import add
from sa_outbox.declare import listener as module
from sa_outbox.declare.listener import Listener, ListenerOptions, RelayOptions
from sa_outbox.operations.endpoint import Delivering

DOCS = Path(__file__).parent.parent.parent / "docs"
OPTIONS = get_type_hints(ListenerOptions)
FIELDS = {each.name: each for each in dataclasses.fields(Listener) if each.init}
NOT_OPTIONS = {"name", "handler", "on", "forwarding"}
"""Arguments of their own, and what only a relay sets."""
_ROW = re.compile(r"^\| (`\w+`(?:, `\w+`)*) \| (.*?) ?\|", re.MULTILINE)


def rows(page: str, heading: str) -> dict[str, str]:
    """The first table below a heading: names of options, and what stands in the second column."""
    _, _, below = (DOCS / page).read_text().partition(heading)
    table = below.partition("| --- |")[2].partition("\n\n")[0]
    return {
        name: default
        for names, default in _ROW.findall(table)
        for name in re.findall(r"\w+", names)
    }


def written(default: Any) -> str:
    if isinstance(default, timedelta):
        unit = "minutes" if default >= timedelta(minutes=1) else "seconds"
        return f"timedelta({unit}={default // timedelta(**{unit: 1})})"
    if isinstance(default, RetryPolicy):
        return "RetryPolicy()"
    return f'"{default}"' if isinstance(default, str) else repr(default)


def documented(cls: type) -> set[str]:
    """Options with a docstring below them, which only the source knows."""
    tree = ast.parse(inspect.getsource(module))
    (body,) = [
        node.body
        for node in tree.body
        if isinstance(node, ast.ClassDef) and node.name == cls.__name__
    ]
    return {
        option.target.id
        for option, below in itertools.pairwise(body)
        if isinstance(option, ast.AnnAssign)
        and isinstance(option.target, ast.Name)
        and isinstance(below, ast.Expr)
        and isinstance(below.value, ast.Constant)
    }


class TestOptions:
    def test_every_option_is_a_field_and_every_field_an_option(self) -> None:
        assert OPTIONS.keys() == FIELDS.keys() - NOT_OPTIONS

    def test_an_option_has_the_type_of_its_field_or_is_left_out_with_none(self) -> None:
        types = get_type_hints(Listener, vars(module) | {"Callable": Callable})
        wrong = [name for name, hint in OPTIONS.items() if hint != types[name] | None]

        assert wrong == []

    def test_every_option_is_explained_where_editors_look(self) -> None:
        assert documented(RelayOptions) | documented(ListenerOptions) == OPTIONS.keys()

    def test_every_option_can_be_left_out(self) -> None:
        assert ListenerOptions.__required_keys__ == frozenset()
        assert ListenerOptions.__optional_keys__ == OPTIONS.keys()


class TestPages:
    def test_every_option_of_a_listener_is_on_its_page_with_its_default(self) -> None:
        found = rows("handlers.md", "\n## Options\n")

        assert found.pop("name") == ""
        assert found.pop("on") == "`None`"
        assert found == {name: f"`{written(default(name))}`" for name in OPTIONS}

    def test_every_option_of_a_relay_is_on_its_page(self) -> None:
        found = rows("relays.md", "\n## Options\n")

        assert set(RelayOptions.__optional_keys__) <= found.keys()


class TestEndpoints:
    def test_what_an_endpoint_is_stored_with_can_be_given_to_the_command(self) -> None:
        """With the default that a row without it has."""
        made = add.make_context("add", ["name", "https://example.com", "--on", "order.*"])
        fields = {each.name: each.default for each in dataclasses.fields(Delivering)}

        assert {name: made.params[name] for name in fields} == fields | {"on": ("order.*",)}


def default(name: str) -> Any:
    field = FIELDS[name]
    if field.default is not dataclasses.MISSING:
        return field.default
    assert field.default_factory is not dataclasses.MISSING
    return field.default_factory()
