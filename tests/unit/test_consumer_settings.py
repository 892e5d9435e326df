"""How a consumer behaves: refused when it is made, whatever is wrong."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import fields
from datetime import timedelta
from typing import Any

import pytest

from sa_outbox.consumer import ConsumerSettings
from sa_outbox.errors import ConfigError
from sa_outbox.settings import CHOICES, IDLE, RETENTIONS

COUNTS = [each.name for each in fields(ConsumerSettings) if isinstance(each.default, int)]
SPANS = [
    each.name
    for each in fields(ConsumerSettings)
    if each.name not in (*COUNTS, *RETENTIONS, *IDLE, *CHOICES)
]


def not_refused(names: Iterable[str], value: Any, why: str) -> list[str]:
    """The settings that take *value*, or refuse it in other words."""
    found = []
    for name in names:
        try:
            ConsumerSettings(**{name: value})
        except ConfigError as error:
            if re.match(f"{name} {why}", str(error)):
                continue
        found.append(name)
    return found


class TestDefaults:
    def test_they_fit_together(self) -> None:
        settings = ConsumerSettings()

        assert settings.grace_period < timedelta(seconds=30), "what Kubernetes gives"
        assert settings.poll_interval_without_notify < settings.poll_interval
        assert settings.probe_timeout < settings.probe_interval

    def test_they_can_not_be_changed_afterwards(self) -> None:
        with pytest.raises(AttributeError):
            ConsumerSettings().threads = 3  # type: ignore[misc]  # that is the point


class TestBadSettings:
    @pytest.mark.parametrize(
        "value",
        [timedelta(0), timedelta(-1), timedelta(days=1, microseconds=1), 30, 1.5, "30s", None],
        ids=str,
    )
    def test_a_span(self, value: Any) -> None:
        assert not_refused(SPANS, value, "must be a timedelta") == []

    @pytest.mark.parametrize("value", [timedelta(0), timedelta(days=3654), 30, "7d"], ids=str)
    def test_how_long_something_is_kept(self, value: Any) -> None:
        assert not_refused(RETENTIONS, value, "must be a timedelta .* or None") == []

    @pytest.mark.parametrize("value", [timedelta(0), timedelta(days=2), 30, "never"], ids=str)
    def test_when_it_sleeps(self, value: Any) -> None:
        assert not_refused(IDLE, value, "must be a timedelta .* or None") == []

    @pytest.mark.parametrize("value", ["loud", "", None, 1], ids=repr)
    def test_a_choice(self, value: Any) -> None:
        assert not_refused(list(CHOICES), value, "must be one of debug, info") == []

    @pytest.mark.parametrize("value", [0, -1, 1.0, True, "3", None], ids=repr)
    def test_a_count(self, value: Any) -> None:
        assert not_refused(COUNTS, value, "must be a positive whole number") == []

    @pytest.mark.parametrize("value", [timedelta.resolution, timedelta(days=1)], ids=str)
    def test_the_ends_are_allowed(self, value: timedelta) -> None:
        for name in SPANS:
            given: dict[str, Any] = {name: value}

            assert getattr(ConsumerSettings(**given), name) == value
