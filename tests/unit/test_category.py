"""Categories: which one an event type has, and what follows from it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sa_outbox import Category, Event, Outbox, RetryPolicy, event_type
from sa_outbox.errors import ConfigError
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

        assert len(categories._found) == 10_000


class TestKeyLifetime:
    def test_it_is_the_category_s_else_the_outbox_s(self) -> None:
        settings = Outbox(
            categories={"report.*": "export", "trail.*": "audit"},
            idempotency_key_lifetime=timedelta(days=1),
        ).settings

        assert settings.key_lifetime_of("report.made") == timedelta(days=30)
        assert settings.key_lifetime_of("trail.written") == timedelta(days=1)
        assert settings.key_lifetime_of("order.placed") == timedelta(days=1)


def retry_of(on: Any, categories: Mapping[str, Any] | None, **options: Any) -> RetryPolicy:
    outbox = Outbox(categories=categories)

    @outbox.listener("it", on=on, **options)
    async def it(event: Event[Any]) -> None: ...

    return outbox.listeners["it"].retry


REPORTS = {"report.*": "export", "report.mail": "notification", "order.*": "planning"}


class TestListeners:
    @pytest.mark.parametrize(
        ("on", "category"),
        [
            ("report.made", "export"),
            ("report.mail", "notification"),
            ("report.daily.*", "export"),
            (["report.a", "report.b"], "export"),
            ("order.*", "planning"),
            ("elsewhere", "default"),
            (["elsewhere", "somewhere.*"], "default"),
        ],
    )
    def test_one_whose_types_are_of_one_category_has_its_retries(
        self, on: Any, category: str
    ) -> None:
        assert retry_of(on, REPORTS) is CATEGORIES[category].retry

    @pytest.mark.parametrize(
        "on",
        [
            ["report.made", "order.placed"],
            "report.*",  # report.mail is among them, and a notification
            "*",
            "r*",
            "*.made",
            ["order.*", "elsewhere"],
        ],
        ids=repr,
    )
    def test_one_whose_types_may_be_of_several_has_the_usual_ones(self, on: Any) -> None:
        assert retry_of(on, REPORTS) == RetryPolicy()

    def test_its_own_retries_win(self) -> None:
        own = RetryPolicy(attempts=9)

        assert retry_of("report.made", REPORTS, retry=own) is own

    def test_without_categories_nothing_changes(self) -> None:
        assert retry_of("report.made", None) == RetryPolicy()
        assert retry_of("report.made", {}) == RetryPolicy()

    @given(
        st.dictionaries(
            st.text("ab.*", min_size=1, max_size=4),
            st.sampled_from(["export", "planning", "default"]),
            min_size=1,
            max_size=4,
        ),
        st.text("ab.*", min_size=1, max_size=4),
        st.text("ab.", min_size=1, max_size=6),
    )
    def test_a_common_category_is_that_of_every_type(
        self, given: dict[str, str], on: str, event_type: str
    ) -> None:
        categories = Categories(given)
        common = categories.common([on])

        wanted = re.escape(on).replace(r"\*", ".*")
        if common is not None and re.fullmatch(wanted, event_type):
            assert categories.of(event_type) == common
