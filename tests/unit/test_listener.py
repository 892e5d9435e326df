"""Declaring listeners: what is taken, what is refused, and what becomes of the function."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy.ext.asyncio import AsyncSession

from sa_outbox import Event, Outbox, OutboxError, RetryPolicy, event_type
from sa_outbox.declare.declaration import MAX_NAME, Listeners, decorator
from sa_outbox.declare.listener import Listener, ListenerOptions
from sa_outbox.errors import ConfigError
from sa_outbox.event.wanted import wanted


@event_type("test_listener.order_placed")
@dataclass
class OrderPlaced:
    order_id: int


@event_type("test_listener.order_paid")
@dataclass
class OrderPaid:
    order_id: int


@dataclass
class Unregistered:
    order_id: int


@pytest.fixture
def outbox() -> Outbox:
    return Outbox()


async def handler(event: Event[Any]) -> None:
    raise NotImplementedError


def declared(outbox: Outbox, name: str = "billing", **options: Any) -> Listener:
    outbox.listener(name, **{"on": "order.placed", **options})(handler)
    return outbox.listeners[name]


class TestDeclaring:
    def test_the_function_stays_what_it_is(self, outbox: Outbox) -> None:
        assert outbox.listener("billing", on="order.placed")(handler) is handler

    def test_one_function_may_serve_two_listeners(self, outbox: Outbox) -> None:
        declared(outbox, "billing")
        declared(outbox, "shipping")

        assert [each.name for each in outbox.listeners] == ["billing", "shipping"]
        assert len(outbox.listeners) == 2
        assert "billing" in outbox.listeners
        assert "mailing" not in outbox.listeners

    def test_what_is_not_said_has_its_default(self, outbox: Outbox) -> None:
        listener = declared(outbox)

        assert listener == Listener(name="billing", handler=handler, on=("order.placed",))
        assert listener.order == "key"
        assert listener.retry_of("order.placed") == RetryPolicy()
        assert listener.timeout == timedelta(minutes=1)
        assert listener.start == "beginning"
        assert listener.external is False

    def test_what_is_said_is_kept(self, outbox: Outbox) -> None:
        options: dict[str, Any] = {
            "order": "total",
            "concurrency": 1,
            "retry": RetryPolicy(attempts=2),
            "timeout": timedelta(seconds=5),
            "batch_size": 7,
            "start": 12,
            "gap_wait": timedelta(seconds=1),
            "external": True,
        }

        listener = declared(outbox, **options)

        assert {name: getattr(listener, name) for name in options} == options

    def test_none_is_as_if_nothing_was_said(self, outbox: Outbox) -> None:
        options: dict[str, Any] = dict.fromkeys(ListenerOptions.__optional_keys__)
        del options["timeout"], options["gap_wait"]

        assert declared(outbox, **options) == declared(Outbox())

    def test_no_time_limit_is_a_limit_that_can_be_asked_for(self, outbox: Outbox) -> None:
        listener = declared(outbox, timeout=None, gap_wait=None)

        assert listener.timeout is None
        assert listener.gap_wait is None

    def test_two_listeners_can_not_have_one_name(self, outbox: Outbox) -> None:
        declared(outbox)

        with pytest.raises(ConfigError, match="'billing' already"):
            declared(outbox, on="order.paid")
        assert outbox.listeners["billing"].on == ("order.placed",)

    def test_two_outboxes_can(self, outbox: Outbox) -> None:
        other = Outbox(prefix="other")
        here, there = declared(outbox), declared(other, on="order.paid")

        assert outbox.listeners["billing"] is here
        assert other.listeners["billing"] is there
        assert (here.on, there.on) == (("order.placed",), ("order.paid",))

    def test_a_wrong_handler_leaves_no_listener_behind(self, outbox: Outbox) -> None:
        with pytest.raises(ConfigError, match="takes 0"):
            outbox.listener("billing", on="order.placed")(lambda: None)

        assert len(outbox.listeners) == 0

    def test_listeners_may_be_declared_while_others_are_gone_through(self, outbox: Outbox) -> None:
        declared(outbox)

        for each in outbox.listeners:
            declared(outbox, f"{each.name}2")

        assert len(outbox.listeners) == 2

    def test_it_can_not_be_changed_afterwards(self, outbox: Outbox) -> None:
        with pytest.raises(AttributeError):
            declared(outbox).batch_size = 3  # type: ignore[misc]  # that is the point


class Kind(StrEnum):
    PLACED = "order.placed"


class TestOn:
    @pytest.mark.parametrize(
        ("on", "expected"),
        [
            ("order.placed", ("order.placed",)),
            ("order.*", ("order.*",)),
            ("*", ("*",)),
            ("*.placed", ("*.placed",)),
            (OrderPlaced, ("test_listener.order_placed",)),
            ([OrderPlaced, "b"], ("test_listener.order_placed", "b")),
            (("a", "b", "a"), ("a", "b")),
            ({"a": 1}.keys(), ("a",)),
            (["a.*", "*", "b"], ("*",)),
            (Kind.PLACED, ("order.placed",)),
        ],
        ids=str,
    )
    def test_names_patterns_and_classes(
        self, outbox: Outbox, on: Any, expected: tuple[str, ...]
    ) -> None:
        assert declared(outbox, on=on).on == expected

    def test_an_iterator_is_gone_through_once(self, outbox: Outbox) -> None:
        def types() -> Iterator[str]:
            yield from ("a", "b")

        assert declared(outbox, on=types()).on == ("a", "b")

    def test_without_it_the_annotation_tells(self, outbox: Outbox) -> None:
        @outbox.listener("billing")
        async def placed(event: Event[OrderPlaced], session: AsyncSession) -> None: ...

        @outbox.listener("reports")
        def paid(events: list[Event[OrderPaid]]) -> None: ...

        assert outbox.listeners["billing"].on == ("test_listener.order_placed",)
        assert outbox.listeners["reports"].on == ("test_listener.order_paid",)

    def test_given_it_goes_before_the_annotation(self, outbox: Outbox) -> None:
        @outbox.listener("billing", on="order.*")
        async def placed(event: Event[OrderPlaced]) -> None: ...

        assert outbox.listeners["billing"].on == ("order.*",)
        assert outbox.listeners["billing"].call.payload == wanted(OrderPlaced)

    def test_neither_is_refused(self, outbox: Outbox) -> None:
        with pytest.raises(ConfigError, match="needs on="):
            outbox.listener("billing")(handler)

    def test_a_class_that_is_no_event_type_is_refused(self, outbox: Outbox) -> None:
        async def placed(event: Event[Unregistered]) -> None: ...

        with pytest.raises(OutboxError, match="Unregistered is not an event type"):
            declared(outbox, on=Unregistered)
        with pytest.raises(OutboxError, match="Unregistered is not an event type"):
            outbox.listener("other")(placed)

    @pytest.mark.parametrize(
        "on",
        [
            "",
            " ",
            "order placed",
            "order.placed\n",
            "order\x00placed",
            "order.%",
            "a" * 201,
            [],
            [""],
            ["order.placed", None],
            [5],
            b"order.placed",
            ["order.placed", ["order.paid"]],
        ],
        ids=ascii,
    )
    def test_what_is_no_event_type_is_refused(self, outbox: Outbox, on: Any) -> None:
        with pytest.raises(ConfigError, match="on= of listener 'billing'"):
            declared(outbox, on=on)

    @pytest.mark.parametrize("on", [5, 1.5, object()], ids=["int", "float", "object"])
    def test_something_else_altogether_is_refused(self, outbox: Outbox, on: Any) -> None:
        with pytest.raises(ConfigError):
            declared(outbox, on=on)

    def test_what_no_database_stores_is_refused(self, outbox: Outbox) -> None:
        with pytest.raises(ConfigError):
            declared(outbox, on="order.\ud800")


class TestNames:
    @given(st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,99}", fullmatch=True))
    def test_letters_digits_and_a_few_signs(self, name: str) -> None:
        listeners = Listeners()

        decorator(name, "order.placed", {}, listeners)(handler)

        assert name in listeners

    @pytest.mark.parametrize(
        "name",
        [
            *("", " ", "a b", "a\n", "-a", ".a", "größe", "a\x00", "a/b", "a" * (MAX_NAME + 1)),
            *(None, 5, b"a", ["a"]),
        ],
        ids=ascii,
    )
    def test_others_are_refused_before_there_is_a_handler(self, outbox: Outbox, name: Any) -> None:
        with pytest.raises(ConfigError, match="a listener's name has"):
            outbox.listener(name, on="order.placed")


class TestBadOptions:
    @pytest.mark.parametrize(
        "options",
        [
            {"order": "random"},
            {"order": 1},
            {"order": ["key"]},
            {"partitions": 0},
            {"partitions": 257},
            {"partitions": True},
            {"partitions": "4"},
            {"concurrency": 0},
            {"concurrency": -1},
            {"concurrency": 1001},
            {"concurrency": 1.0},
            {"concurrency": True},
            {"concurrency": "2"},
            {"batch_size": 0},
            {"batch_size": 10_001},
            {"batch_size": "10"},
            {"retry": 5},
            {"retry": RetryPolicy},
            {"timeout": timedelta(0)},
            {"timeout": timedelta(-1)},
            {"timeout": timedelta(days=1, microseconds=1)},
            {"timeout": 60},
            {"gap_wait": timedelta(0)},
            {"gap_wait": timedelta(days=2)},
            {"gap_wait": 30},
            {"start": "end"},
            {"start": 0},
            {"start": -5},
            {"start": True},
            {"start": 1.5},
            {"start": timedelta(1)},
            {"start": datetime(2026, 1, 1)},  # noqa: DTZ001 - that is the point
        ],
        ids=str,
    )
    def test_it_is_refused_when_it_is_declared(
        self, outbox: Outbox, options: dict[str, Any]
    ) -> None:
        with pytest.raises(ConfigError, match=f"{next(iter(options))} of .*'billing'|'billing'"):
            declared(outbox, **options)
        assert "billing" not in outbox.listeners

    def test_an_option_that_does_not_exist_is_refused(self, outbox: Outbox) -> None:
        with pytest.raises(TypeError) as raised:
            outbox.listener("billing", on="a", concurency=2)  # type: ignore[call-arg]  # a typo

        assert str(raised.value) == (
            "listener() got an unexpected keyword argument 'concurency'; "
            "did you mean 'concurrency'?"
        )

    def test_a_queue_that_is_given_event_types_says_where_they_go(self, outbox: Outbox) -> None:
        with pytest.raises(TypeError) as raised:
            outbox.queue("q", on="x.*")  # type: ignore[call-arg]  # the subject

        assert str(raised.value) == (
            "queue() got an unexpected keyword argument 'on'; "
            'write outbox.queue("exports").on("export.*")'
        )
        assert "q" not in outbox.listeners

    @pytest.mark.parametrize("name", ["handler", "forwarding", "call", "order_mode"])
    def test_a_field_that_is_no_option_is_refused(self, outbox: Outbox, name: str) -> None:
        options: dict[str, Any] = {name: None}

        with pytest.raises(TypeError, match=name):
            outbox.listener("billing", on="a", **options)

    def test_one_after_the_other_can_not_be_side_by_side(self, outbox: Outbox) -> None:
        with pytest.raises(ConfigError, match="order='total' and partitions=2"):
            declared(outbox, order="total", partitions=2)
        with pytest.raises(ConfigError, match='order="total" and concurrency=2'):
            declared(outbox, order="total", concurrency=2)

    @pytest.mark.parametrize(
        "start", ["beginning", "now", 1, 10**18, datetime(2026, 1, 1, tzinfo=UTC)], ids=str
    )
    def test_a_listener_can_start_at(self, outbox: Outbox, start: Any) -> None:
        assert declared(outbox, start=start).start == start


class TestFingerprint:
    def fingerprint(self, **options: Any) -> str:
        return declared(Outbox(), **options).fingerprint

    def test_it_is_short_and_stays_the_same(self) -> None:
        """Made otherwise, every listener would be reported as changed after an upgrade."""
        assert self.fingerprint() == "70c574ed94b6cdf7"

    def test_the_order_of_the_types_does_not_matter(self) -> None:
        assert self.fingerprint(on=["a", "b"]) == self.fingerprint(on=["b", "a"])

    def test_what_it_reads_and_how_it_reads_does(self) -> None:
        others = [self.fingerprint(), self.fingerprint(on="*"), self.fingerprint(order="total")]

        assert len(set(others)) == 3

    def test_how_fast_it_works_does_not(self) -> None:
        quick = self.fingerprint(concurrency=50, batch_size=9, timeout=None)

        assert quick == self.fingerprint()

    def test_a_name_given_as_an_enum_is_the_same_name(self) -> None:
        assert self.fingerprint(on=Kind.PLACED) == self.fingerprint(on="order.placed")


class TestWhatItWants:
    """The types that the statements choose on the server."""

    @pytest.mark.parametrize(
        ("on", "wanted", "not_wanted"),
        [
            ("*", ["a", "order.placed"], []),
            ("order.placed", ["order.placed"], ["order.placed2", "xorder.placed", "order_placed"]),
            ("order.*", ["order.", "order.placed", "order.a.b"], ["order", "orders.a"]),
            (["a.*", "*.b", "c"], ["a.x", "x.b", "c"], ["x.y", "cc", "x.b.y"]),
            ("o_der.*[x]", ["o_der.1[x]"], ["order.1[x]", "o_der.1x"]),
        ],
    )
    def test_each_type_is_one_of_on_or_is_not(
        self, outbox: Outbox, on: Any, wanted: list[str], not_wanted: list[str]
    ) -> None:
        wants = declared(outbox, on=on).wants
        assert [one for one in wanted + not_wanted if wants(one)] == wanted
