"""Where an event comes from, as far as its row tells a log."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sa_outbox.event.origin import MAX_CHARACTERS, Origin, identifiers

ALL = {"request_id": "r-1", "correlation_id": "c-1", "project_id": "p-1"}
ANY = st.one_of(st.text(max_size=600), st.integers(), st.none(), st.lists(st.integers()))


def stored(**headers: Any) -> str:
    return msgspec.json.encode(headers).decode()


def test_the_three_are_found_among_others() -> None:
    assert identifiers(stored(**ALL, actor_id="7", causation_depth=3)) == ("r-1", "c-1", "p-1")


DEEP = '{"request_id": "r", "x": ' + "[" * 5000 + "]" * 5000 + "}"


@pytest.mark.parametrize(
    "headers",
    [None, "{}", "[]", "1", "nonsense", "", '{"request_id"', DEEP],
    ids=["none", "no headers", "a list", "a number", "nonsense", "nothing", "cut off", "deep"],
)
def test_what_has_none_or_can_not_be_decoded_has_none(headers: str | None) -> None:
    assert identifiers(headers) == ("", "", "")


@pytest.mark.parametrize(
    "wrong", [7, None, ["r"], "two\nlines", "\x1b[31m", "x" * (MAX_CHARACTERS + 1)], ids=repr
)
def test_one_that_is_not_fit_for_a_line_does_not_hide_the_others(wrong: object) -> None:
    assert identifiers(stored(**{**ALL, "request_id": wrong})) == ("", "c-1", "p-1")


@given(request=ANY, correlation=ANY)
def test_whatever_was_stored_it_is_a_short_printable_text(
    request: object, correlation: object
) -> None:
    found = identifiers(stored(request_id=request, correlation_id=correlation))

    assert all(each.isprintable() and len(each) <= MAX_CHARACTERS for each in found)


def test_only_what_is_known_is_shown() -> None:
    origin = Origin("acme", stored(request_id="r-1", card="4111"))

    assert origin.known == {"tenant": "acme", "request_id": "r-1"}
    assert "4111" not in repr(origin)


def test_a_tenant_that_is_not_fit_for_a_line_is_left_out() -> None:
    assert Origin("a\nb", "{}").known == {}
