"""What each order of a listener means, and that nobody else decides it."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

import sa_outbox
from sa_outbox.errors import ConfigError
from sa_outbox.operations.endpoint import Delivering
from sa_outbox.policy.order import ORDER_MODES, ORDERS, checked_order, either

PACKAGE = Path(sa_outbox.__file__).parent
HOME = PACKAGE / "policy" / "order.py"
EVENTS = [("a", 1), ("b", 2), (None, 3), ("a", 4), (None, 5)]
"""Each with its key and a number of its own."""


def lanes(order: str) -> list[list[int]]:
    """The events that share a lane."""
    lane = ORDER_MODES[order].lane
    shared: dict[object, list[int]] = {}
    for key, own in EVENTS:
        shared.setdefault(lane(key, own), []).append(own)
    return list(shared.values())


class TestModes:
    def test_every_order_that_can_be_written_has_a_mode(self) -> None:
        assert tuple(ORDER_MODES) == ORDERS
        assert [each.name for each in ORDER_MODES.values()] == list(ORDERS)

    def test_in_total_order_every_event_waits_for_the_one_before(self) -> None:
        assert lanes("total") == [[1, 2, 3, 4, 5]]

    def test_in_the_order_of_keys_events_wait_for_those_of_their_key(self) -> None:
        assert lanes("key") == [[1, 4], [2], [3], [5]]

    def test_in_no_order_no_event_waits(self) -> None:
        assert lanes("none") == [[1], [2], [3], [4], [5]]

    @pytest.mark.parametrize(
        ("question", "orders"),
        [
            ("is_one_at_a_time", ["total"]),
            ("is_unordered", ["none"]),
            ("waits_at_holes", ["total"]),
            ("is_divisible", ["key"]),
            ("is_queue", ["none"]),
        ],
    )
    def test_the_answer_is_yes_for(self, question: str, orders: list[str]) -> None:
        assert [name for name, mode in ORDER_MODES.items() if getattr(mode, question)] == orders

    def test_the_answers_of_a_mode_agree_with_each_other(self) -> None:
        """A held event's errors are in the cursor's row, which has room for one; partitions have
        keys of their own; and whoever claims ranges keeps no order."""
        for mode in ORDER_MODES.values():
            assert mode.after_failure != "hold" or mode.is_one_at_a_time, mode.name
            assert not mode.is_divisible or not mode.is_one_at_a_time, mode.name
            assert mode.is_queue == mode.is_unordered == (mode.after_failure == "schedule")


class TestErrors:
    @pytest.mark.parametrize("order", ["random", "", "KEY", 1, None, ["key"], b"key"], ids=repr)
    def test_what_is_no_order_is_refused(self, order: Any) -> None:
        with pytest.raises(ConfigError) as raised:
            checked_order("order of listener 'l'", order)

        assert str(raised.value) == (
            f'order of listener \'l\' must be "total", "key" or "none", not {order!r}'
        )

    def test_an_endpoint_refuses_it_too(self) -> None:
        with pytest.raises(ConfigError, match="not 'random'"):
            Delivering(on=("*",), order="random")  # type: ignore[arg-type]  # that is the point

    def test_they_are_listed_as_one_would_write_them(self) -> None:
        assert either(["key"]) == '"key"'
        assert either(["key", "none"]) == '"key" or "none"'


class TestHome:
    def test_nobody_else_compares_an_order_with_its_name(self) -> None:
        asked = [
            f"{path.relative_to(PACKAGE)}:{line}"
            for path in sorted(PACKAGE.rglob("*.py"))
            if path != HOME
            for line in comparisons(path.read_text())
        ]

        assert asked == []

    @pytest.mark.parametrize(
        "source",
        [
            "listener.order == 'total'",
            "'none' != self._order",
            "order in ('key', 'none')",
            "given['order'] not in ('key',)",
            "mode.name == 'key'",
        ],
    )
    def test_a_comparison_is_found(self, source: str) -> None:
        assert comparisons(source) == [1]

    @pytest.mark.parametrize("source", ["call.session == 'none'", "order == other", "x.key == 'a'"])
    def test_others_are_not(self, source: str) -> None:
        assert comparisons(source) == []


def comparisons(source: str) -> list[int]:
    """Lines that compare something called an order, or the name of a mode, with an order."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Compare)
        and any(is_an_order(each) for each in (node.left, *node.comparators))
        and any(
            isinstance(each, ast.Constant) and each.value in ORDERS
            for side in (node.left, *node.comparators)
            if not is_an_order(side)
            for each in ast.walk(side)
        )
    ]


def is_an_order(node: ast.expr) -> bool:
    match node:
        case ast.Attribute(attr=name) | ast.Name(id=name) if name.lstrip("_") == "order":
            return True
        case ast.Subscript(slice=ast.Constant(value="order")):
            return True
        case ast.Attribute(
            value=ast.Name(id="mode") | ast.Attribute(attr="order_mode"), attr="name"
        ):
            return True
        case _:
            return False
