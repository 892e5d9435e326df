"""Every setting is documented twice: beside its field, and on its page with its default.

The form of the page, docs/settings.md: a heading ``### `field` `` for each field, and below it,
before the next heading, a line that begins with ``Default: `value` ``, as ``repr`` writes it;
times as ``timedelta`` does (``Default: `7 days, 0:00:00` ``). The settings of a consumer are also
options and environment variables of ``python -m sa_outbox.consume``.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import re
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import click
import pytest

from sa_outbox import Outbox, RetryPolicy
from sa_outbox.consume.command import command
from sa_outbox.settings import ConsumerSettings, Limits, Names, Settings

PAGE = Path(__file__).parent.parent.parent / "docs" / "settings.md"
_ENTRY = re.compile(
    r"^### `(?P<field>\w+)`\n(?P<text>.*?)(?=^#{1,6} |\Z)", re.MULTILINE | re.DOTALL
)
_DEFAULT = re.compile(r"^Default: `(?P<value>[^`]+)`", re.MULTILINE)

CLASSES = (Names, Limits, Settings, ConsumerSettings)
GROUPS = {"names", "limits"}
"""Fields of Settings that are objects with fields of their own."""


def fields_of(cls: Any) -> list[dataclasses.Field[Any]]:
    return [each for each in dataclasses.fields(cls) if each.name not in GROUPS]


FIELDS = [each for cls in CLASSES for each in fields_of(cls)]


def shown(default: object) -> str:
    return str(default) if isinstance(default, timedelta) else repr(default)


def documented_fields(module: Any, cls: type) -> set[str]:
    """Fields with a docstring below them, which only the source knows."""
    tree = ast.parse(inspect.getsource(module))
    (body,) = [
        node.body
        for node in tree.body
        if isinstance(node, ast.ClassDef) and node.name == cls.__name__
    ]
    return {
        field.target.id
        for field, below in itertools.pairwise(body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(below, ast.Expr)
        and isinstance(below.value, ast.Constant)
        and isinstance(below.value.value, str)
    }


def entries() -> dict[str, str]:
    if not PAGE.exists():
        pytest.fail("docs/settings.md does not exist")
    return {each["field"]: each["text"] for each in _ENTRY.finditer(PAGE.read_text())}


class TestFields:
    @pytest.mark.parametrize("cls", [*CLASSES, RetryPolicy])
    def test_every_field_has_a_docstring(self, cls: Any) -> None:
        documented = documented_fields(sys.modules[cls.__module__], cls)

        assert [each.name for each in fields_of(cls) if each.name not in documented] == []

    @pytest.mark.parametrize("cls", [*CLASSES, RetryPolicy])
    def test_settings_are_frozen_and_given_by_name(self, cls: Any) -> None:
        assert cls.__dataclass_params__.frozen
        assert all(each.kw_only for each in dataclasses.fields(cls))

    def test_no_field_has_the_name_of_another(self) -> None:
        names = [each.name for each in FIELDS]

        assert len(names) == len(set(names))

    def test_an_outbox_takes_every_name_and_setting_with_the_same_default(self) -> None:
        taken = inspect.signature(Outbox.__init__).parameters

        for cls in (Names, Settings):
            for each in fields_of(cls):
                assert taken[each.name].default == each.default, each.name
        assert set(taken) == {
            "self",
            "limits",
            *(each.name for each in fields_of(Names)),
            *(each.name for each in fields_of(Settings)),
        }


class TestCommand:
    """``python -m sa_outbox.consume``."""

    def test_every_setting_of_a_consumer_is_an_option_with_its_variable_and_default(self) -> None:
        context = click.Context(command)
        fields = dataclasses.fields(ConsumerSettings)
        options = {
            each.name: (
                each.opts,
                each.envvar,
                each.type_cast_value(context, each.get_default(context)),
            )
            for each in command.params
            if each.name in {field.name for field in fields}
        }
        expected = {
            each.name: (
                ["--" + each.name.replace("_", "-")],
                f"SA_OUTBOX_{each.name.upper()}",
                each.default,
            )
            for each in fields
        }

        assert options == expected


class TestPage:
    def test_every_field_has_an_entry_with_its_default(self) -> None:
        """``None``: no heading for it. An empty list: no line ``Default: `value` `` below it."""
        texts = entries()
        found = {
            each.name: _DEFAULT.findall(texts[each.name]) if each.name in texts else None
            for each in FIELDS
        }

        assert found == {each.name: [shown(each.default)] for each in FIELDS}

    def test_every_entry_is_a_field(self) -> None:
        known = {each.name for each in FIELDS}
        known |= {each.name for each in dataclasses.fields(RetryPolicy)}

        assert entries().keys() <= known

    def test_the_environment_variable_is_on_the_page(self) -> None:
        assert entries()
        assert "`SA_OUTBOX_NOTIFY" in PAGE.read_text()
