"""An option of a listener: what users write, the field it becomes, what endpoints have of it."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
from collections.abc import Callable
from typing import get_type_hints

import pytest

from sa_outbox.cli.endpoint_change import change
from sa_outbox.cli.endpoints import add
from sa_outbox.declare import listener as module
from sa_outbox.declare.listener import (
    CommonOptions,
    Listener,
    ListenerOptions,
    QueueOptions,
    RelayOptions,
)
from sa_outbox.operations.endpoint import Delivering, Endpoint
from sa_outbox.policy.category import Categories
from sa_outbox.policy.order import Order
from sa_outbox.relay.endpoints import endpoint_listener
from sa_outbox.settings import Settings

OPTIONS = get_type_hints(ListenerOptions)
FIELDS = {each.name: each for each in dataclasses.fields(Listener) if each.init}
NOT_OPTIONS = {"name", "handler", "on", "categories", "members", "forwarding"}
"""Arguments of their own, what the outbox knows, and what only a queue or a relay sets."""


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
        names = {"Callable": Callable, "Categories": Categories}
        types = get_type_hints(Listener, vars(module) | names)
        wrong = [name for name, hint in OPTIONS.items() if hint != types[name] | None]

        assert wrong == []

    def test_every_option_is_explained_where_editors_look(self) -> None:
        kinds = (CommonOptions, RelayOptions, QueueOptions, ListenerOptions)

        assert set().union(*map(documented, kinds)) == OPTIONS.keys()

    def test_every_option_can_be_left_out(self) -> None:
        assert ListenerOptions.__required_keys__ == frozenset()
        assert ListenerOptions.__optional_keys__ == OPTIONS.keys()


class TestEndpoints:
    def test_what_an_endpoint_is_stored_with_can_be_given_to_the_command(self) -> None:
        """With the default that a row without it has."""
        made = add.make_context("add", ["name", "https://example.com", "--on", "order.*"])
        fields = {each.name: each.default for each in dataclasses.fields(Delivering)}

        assert {name: made.params[name] for name in fields} == fields | {"on": ("order.*",)}

    def test_all_but_its_order_can_be_changed_and_stays_if_it_is_not_given(self) -> None:
        made = change.make_context("change", ["name", "--no-where"])
        names = {each.name for each in dataclasses.fields(Delivering)} - {"order"}

        assert {name: made.params[name] for name in names} == dict.fromkeys(names) | {"on": ()}

    @pytest.mark.parametrize(("order", "concurrency"), [("key", 7), ("none", 7), ("total", 1)])
    def test_what_it_is_stored_with_is_passed_on_to_its_listener(
        self, order: Order, concurrency: int
    ) -> None:
        """An operator who wants one after the other need not say how many at once."""

        async def gone(_why: str) -> None: ...

        delivering = Delivering(on=("order.*",), order=order, concurrency=7, probe_interval=2)
        endpoint = Endpoint(
            name="acme", url="https://example.com/hooks", delivering=delivering, secrets=()
        )

        listener = endpoint_listener(endpoint, Settings(), None, gone)

        assert (listener.order, listener.concurrency) == (order, concurrency)
        assert listener.forwarding is not None
        assert listener.forwarding.max_pause == 2.0
