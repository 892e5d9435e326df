"""Categories: which one an event type has, and what follows from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sa_outbox import Category, Event, Outbox, RetryPolicy, event_type
from sa_outbox.declare.listener import Listener
from sa_outbox.errors import ConfigError
from sa_outbox.event.type_patterns import matcher
from sa_outbox.policy.category import CATEGORIES, DEFAULT, Categories

BILLING = Category("billing", queue="critical", retry=RetryPolicy(attempts=2))


@event_type("category_test.invoice_made")
@dataclass(frozen=True)
class InvoiceMade:
    number: int


class TestPredefined:
    """The figures of the design, one line each."""

    @pytest.mark.parametrize(
        ("name", "queue", "attempts", "maximum", "days"),
        [
            ("notification", "notifications", 10, timedelta(minutes=30), 7),
            ("planning", "planning", 3, timedelta(minutes=2), 30),
            ("export", "exports", 5, timedelta(minutes=10), 30),
            ("import", "exports", 5, timedelta(minutes=10), 30),
            ("maintenance", "maintenance", 5, timedelta(minutes=5), 7),
            ("audit", "default", 5, timedelta(minutes=5), None),
            ("default", "default", 5, timedelta(minutes=5), None),
        ],
    )
    def test_figures(
        self, name: str, queue: str, attempts: int, maximum: timedelta, days: int | None
    ) -> None:
        category = CATEGORIES[name]

        assert category.queue == queue
        assert (category.retry.attempts, category.retry.maximum) == (attempts, maximum)
        assert category.retry.base == timedelta(seconds=5)
        assert category.key_lifetime == (None if days is None else timedelta(days=days))

    def test_there_are_no_others(self) -> None:
        assert len(CATEGORIES) == 7
        with pytest.raises(TypeError):
            CATEGORIES["mine"] = BILLING  # type: ignore[index]  # that is the point


class TestDeclaring:
    @pytest.mark.parametrize(
        ("name", "options"),
        [
            ("", {}),
            ("a b", {}),
            (7, {}),
            ("a", {"queue": ""}),
            ("a", {"queue": None}),
            ("a", {"retry": None}),
            ("a", {"retry": 5}),
            ("a", {"key_lifetime": timedelta(0)}),
            ("a", {"key_lifetime": 7}),
            ("a", {"key_lifetime": timedelta(days=4000)}),
        ],
    )
    def test_wrong_figures_are_refused(self, name: Any, options: Any) -> None:
        with pytest.raises(ConfigError):
            Category(name, **options)

    @pytest.mark.parametrize(
        "given",
        [
            {"order.placed": "mail"},
            {"order.placed": None},
            {"order.placed": RetryPolicy()},
            {"order placed": "export"},
            {"": "export"},
            {7: "export"},
            {int: "export"},
            {"x" * 201: "export"},
            ["order.placed"],
            "export",
            {"a": "export", "b": Category("export", queue="mine")},
            {"a": BILLING, "b": replace(BILLING, queue="other")},
        ],
        ids=repr,
    )
    def test_wrong_categories_are_refused_when_the_outbox_is_made(self, given: Any) -> None:
        with pytest.raises(ConfigError, match="categor"):
            Outbox(categories=given)

    def test_one_of_another_name_s_figures(self) -> None:
        mine = replace(CATEGORIES["export"], key_lifetime=timedelta(days=90))

        outbox = Outbox(categories={"report.*": mine})

        assert outbox.category_of("report.made").key_lifetime == timedelta(days=90)


class TestLookingUp:
    def test_the_name_wins_over_patterns_and_the_longest_pattern_over_others(self) -> None:
        outbox = Outbox(
            categories={
                "*": "maintenance",
                "report.*": "export",
                "report.daily.*": "planning",
                "report.daily.mail": "notification",
            }
        )

        assert outbox.category_of("report.daily.mail").name == "notification"
        assert outbox.category_of("report.daily.plan").name == "planning"
        assert outbox.category_of("report.weekly").name == "export"
        assert outbox.category_of("order.placed").name == "maintenance"

    def test_of_two_patterns_as_long_the_first_one_wins(self) -> None:
        assert Categories({"a.*": "export", "*.b": "import"}).of("a.b").name == "export"
        assert Categories({"*.b": "import", "a.*": "export"}).of("a.b").name == "import"

    def test_a_type_that_nothing_was_said_of_has_the_default(self) -> None:
        assert Outbox().category_of("order.placed") is DEFAULT
        assert Outbox(categories={"a.*": "export"}).category_of("order.placed") is DEFAULT

    def test_a_class_stands_for_its_event_type(self) -> None:
        outbox = Outbox(categories={InvoiceMade: BILLING})

        assert outbox.category_of("category_test.invoice_made") is BILLING
        assert outbox.category_of(InvoiceMade) is BILLING

    def test_what_is_special_to_regular_expressions_is_not_special_here(self) -> None:
        categories = Categories({"a.b*": "export"})

        assert categories.of("axb") is DEFAULT
        assert categories.of("a.bc").name == "export"

    def test_names_without_end_do_not_fill_the_memory(self) -> None:
        categories = Categories({"a.*": "export"})

        for number in range(10_100):
            categories.of(f"a.n{number}")

        assert len(categories._by_type._found) == 10_000


class TestKeyLifetime:
    def test_it_is_the_category_s_else_the_outbox_s(self) -> None:
        settings = Outbox(
            categories={"report.*": "export", "trail.*": "audit"},
            idempotency_key_lifetime=timedelta(days=1),
        ).settings

        assert settings.key_lifetime_of("report.made") == timedelta(days=30)
        assert settings.key_lifetime_of("trail.written") == timedelta(days=1)
        assert settings.key_lifetime_of("order.placed") == timedelta(days=1)


def listener_of(categories: Mapping[str, Any] | None, on: Any, **options: Any) -> Listener:
    outbox = Outbox(categories=categories)

    @outbox.listener("it", on=on, **options)
    async def it(event: Event[Any]) -> None: ...

    return outbox.listeners["it"]


REPORTS = {"report.*": "export", "report.mail": "notification", "order.*": "planning"}


class TestListeners:
    def test_each_event_has_the_retries_of_its_own_category(self) -> None:
        listener = listener_of(REPORTS, ["report.*", "order.placed", "elsewhere"])

        for name, category in (
            ("report.made", "export"),
            ("report.mail", "notification"),
            ("order.placed", "planning"),
            ("elsewhere", "default"),
        ):
            assert listener.retry_of(name) is CATEGORIES[category].retry

    def test_its_own_retries_win(self) -> None:
        own = RetryPolicy(attempts=9)

        assert listener_of(REPORTS, "report.*", retry=own).retry_of("report.made") is own

    @pytest.mark.parametrize("categories", [None, {}])
    def test_without_categories_nothing_changes(self, categories: Any) -> None:
        assert listener_of(categories, "report.*").retry_of("report.made") == RetryPolicy()

    def test_a_relay_keeps_its_own(self) -> None:
        outbox = Outbox(categories=REPORTS)
        outbox.relay("out", cast(Any, Silent()), on="report.*", to="reports")

        assert outbox.listeners["out"].retry_of("report.made").attempts == 20


class Silent:
    """A relay that sends nothing."""

    keeps_order = takes_batches = True
    attribute_prefix = ""

    def check_destination(self, to: str) -> None: ...

    async def send(self, messages: Any) -> Any: ...

    async def close(self) -> None: ...


names = st.text("ab.", min_size=1, max_size=5)
types = st.text("ab.*", min_size=1, max_size=4)
QUEUES = {each: Category(f"of-{each}", queue=each) for each in ("first", "second", "default")}


class TestQueues:
    """Which event types a queue gets by its categories."""

    def test_a_queue_has_the_types_of_all_categories_that_name_it(self) -> None:
        categories = Categories({"report.*": "export", "file.*": "import", "mail.*": "planning"})

        assert set(categories.types_of("exports")) == {"report.*", "file.*"}
        assert categories.types_of("nobody's") == ()

    def test_a_type_that_another_category_takes_out_is_excluded(self) -> None:
        assert Categories(REPORTS).types_of("exports") == ("report.*", "!report.mail")
        assert Categories(REPORTS).types_of("notifications") == ("report.mail",)

    def test_the_default_queue_has_whatever_no_other_has(self) -> None:
        wants = matcher(Categories({**REPORTS, "trail.*": "audit"}).types_of("default"))

        assert [wants(each) for each in ("elsewhere", "trail.left")] == [True, True]
        assert [wants(each) for each in ("report.made", "report.mail", "order.placed")] == [
            False,
            False,
            False,
        ]

    def test_an_exception_to_an_exception_is_refused(self) -> None:
        given = {"*": QUEUES["first"], "a.*": QUEUES["second"], "a.b": QUEUES["first"]}

        with pytest.raises(ConfigError, match=r"'a\.b' has the queue 'first'.*on\(\)"):
            Categories(given).types_of("first")
        assert Categories(given).types_of("second") == ("a.*", "!a.b")

    @given(st.dictionaries(types, st.sampled_from(sorted(QUEUES)), max_size=5), names)
    def test_each_type_is_in_the_queue_of_its_category_and_in_no_other(
        self, given: dict[str, str], event_type: str
    ) -> None:
        categories = Categories({one: QUEUES[queue] for one, queue in given.items()})

        for queue in QUEUES:
            try:
                wants = matcher(categories.types_of(queue))
            except ConfigError:
                continue
            assert wants(event_type) == (categories.of(event_type).queue == queue)
