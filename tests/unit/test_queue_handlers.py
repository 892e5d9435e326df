"""``outbox.queue``: a queue, and the handlers that are added to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from sa_outbox import Category, Event, Outbox, event_type
from sa_outbox.declare.listener import Listener
from sa_outbox.errors import ConfigError


@event_type("queue_handlers.invoice_made")
@dataclass(frozen=True)
class InvoiceMade:
    number: int


async def one(event: Event[Any]) -> None: ...
async def other(event: Event[Any]) -> None: ...
async def with_session(event: Event[Any], session: AsyncSession) -> None: ...
def in_a_thread(event: Event[Any], session: Session) -> None: ...
async def typed(event: Event[InvoiceMade]) -> None: ...
async def batch(events: Sequence[Event[Any]]) -> None: ...


def handler_of(listener: Listener, name: str) -> Any:
    place = listener.handler_of(name)
    return None if place is None else listener.handlers[place].handler


class TestOneHandler:
    def test_it_is_a_listener_with_order_none_and_the_queue_s_options(self) -> None:
        queued, declared = Outbox(), Outbox()
        options: Any = {"concurrency": 4, "timeout": timedelta(seconds=5)}

        assert queued.queue("exports", **options).on("a.b", "c.*")(one) is one
        declared.listener("exports", on=["a.b", "c.*"], order="none", **options)(one)

        assert list(queued.listeners) == list(declared.listeners)

    def test_without_types_it_gets_those_whose_category_names_the_queue(self) -> None:
        mine = Category("mine", queue="exports")
        outbox = Outbox(categories={"report.*": "export", "report.mail": "planning", "x.y": mine})

        assert outbox.queue("exports")(one) is one

        listener = outbox.listeners["exports"]
        wanted = [
            each for each in ("report.made", "report.mail", "x.y", "z") if listener.wants(each)
        ]
        assert wanted == ["report.made", "x.y"]

    def test_a_queue_that_no_category_names_needs_types(self) -> None:
        outbox = Outbox(categories={"report.*": "export"})

        with pytest.raises(ConfigError, match=r"no category has the queue 'mine'.*\.on\("):
            outbox.queue("mine")(one)
        assert len(outbox.listeners) == 0

    def test_its_types_may_come_from_the_annotation(self) -> None:
        outbox = Outbox()

        outbox.queue("invoices").on()(typed)

        assert outbox.listeners["invoices"].on == ("queue_handlers.invoice_made",)

    @pytest.mark.parametrize("options", [{"order": "key"}, {"partitions": 2}, {"concurency": 2}])
    def test_an_option_that_no_queue_has_is_refused(self, options: Any) -> None:
        with pytest.raises(TypeError, match=r"queue\(\) got an unexpected"):
            Outbox().queue("exports", **options)

    def test_its_name_is_checked_before_it_has_a_handler(self) -> None:
        with pytest.raises(ConfigError, match="name"):
            Outbox().queue("no spaces")

    def test_a_batch_handler_may_be_the_only_one(self) -> None:
        outbox = Outbox()

        outbox.queue("exports").on("a.b")(batch)

        assert outbox.listeners["exports"].call.batch


class TestSeveralHandlers:
    def test_they_are_one_listener_to_all_their_types(self) -> None:
        outbox = Outbox()
        exports = outbox.queue("exports", concurrency=7)
        exports.on("export.requested")(one)
        exports.on("export.cancelled", "export.d*")(other)

        (listener,) = outbox.listeners

        assert (listener.name, listener.concurrency) == ("exports", 7)
        assert listener.on == ("export.requested", "export.cancelled", "export.d*")
        assert handler_of(listener, "export.requested") is one
        assert handler_of(listener, "export.cancelled") is other
        assert handler_of(listener, "export.done") is other
        assert handler_of(listener, "export.else") is None
        assert not listener.wants("export.else")

    def test_the_name_wins_and_then_the_longest_pattern(self) -> None:
        outbox = Outbox()
        exports = outbox.queue("exports")
        exports.on("*")(one)
        exports.on("export.*")(other)
        exports.on("export.made")(typed)

        listener = outbox.listeners["exports"]

        assert handler_of(listener, "export.made") is typed
        assert handler_of(listener, "export.lost") is other
        assert handler_of(listener, "order.placed") is one

    @pytest.mark.parametrize("again", ["export.made", "export.*"])
    def test_one_type_has_one_handler(self, again: str) -> None:
        outbox = Outbox()
        exports = outbox.queue("exports")
        exports.on("export.made", "export.*")(one)

        with pytest.raises(ConfigError, match=f"has a handler for '{again}'"):
            exports.on(again)(other)
        assert outbox.listeners["exports"].handlers[0].handler is one

    def test_each_may_have_a_session_of_its_kind_or_none(self) -> None:
        outbox = Outbox()
        exports = outbox.queue("exports")
        for name, handler in (("a", one), ("b", with_session), ("c", in_a_thread)):
            exports.on(name)(handler)

        sessions = [each.call.session for each in outbox.listeners["exports"].handlers]

        assert sessions == ["none", "async", "sync"]

    @pytest.mark.parametrize(("first", "second"), [(batch, one), (one, batch)])
    def test_none_of_several_takes_batches(self, first: Any, second: Any) -> None:
        exports = Outbox().queue("exports")
        exports.on("a")(first)

        with pytest.raises(ConfigError, match=r"'exports' has several handlers.*batches"):
            exports.on("b")(second)

    def test_one_that_can_not_be_cancelled_is_refused_where_it_is_added(self) -> None:
        exports = Outbox().queue("exports", cancellable=True)
        exports.on("a")(one)

        with pytest.raises(ConfigError, match="cancellable"):
            exports.on("b")(in_a_thread)

    def test_one_for_the_categories_and_one_for_a_type_of_another_queue(self) -> None:
        """Who names a type wants it, whatever its category is."""
        outbox = Outbox(categories={"report.*": "export", "report.mail": "notification"})
        exports = outbox.queue("exports")
        exports(one)
        exports.on("report.mail")(other)

        listener = outbox.listeners["exports"]

        assert listener.on == ("report.*", "report.mail")
        assert handler_of(listener, "report.mail") is other

    def test_what_one_excludes_and_another_takes_a_part_of_is_refused(self) -> None:
        exports = Outbox().queue("exports")
        exports.on("report.*", "!report.mail.*")(one)

        with pytest.raises(ConfigError, match=r"excludes 'report\.mail\.\*'.*'report\.mail\.sent'"):
            exports.on("report.mail.sent")(other)

    def test_a_listener_of_the_same_name_is_refused(self) -> None:
        outbox = Outbox()
        outbox.listener("exports", on="a")(one)

        with pytest.raises(ConfigError, match="there is a listener 'exports'"):
            outbox.queue("exports").on("b")(other)


class TestExcluding:
    """``!`` before an event type of ``on=``."""

    def test_the_excluded_types_are_not_wanted(self) -> None:
        outbox = Outbox()
        outbox.listener("it", on=["order.*", "!order.viewed", "!*.draft"])(one)

        wants = outbox.listeners["it"].wants

        assert [wants(each) for each in ("order.placed", "order.viewed", "order.draft")] == [
            True,
            False,
            False,
        ]

    @pytest.mark.parametrize(
        "on",
        [
            "!order.viewed",
            ["!a", "!b"],
            ["a", "!"],
            ["a", "!!b"],
            ["a.b", "!a.*"],
            ["*", "!*"],
            "a!b",
        ],
        ids=repr,
    )
    def test_what_would_never_get_an_event_is_refused(self, on: Any) -> None:
        with pytest.raises(ConfigError, match="on= of listener 'it'"):
            Outbox().listener("it", on=on)(one)
