"""Masked fields: seen by nobody, and neither lost nor moved by an edit."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sa_outbox.dashboard.mask import MASK, EditRefused, Masks
from sa_outbox.errors import ConfigError

MASKS = Masks(["password", "card.*", "*_token"])
PAYLOAD = {
    "user": {"name": "ada", "Password": "s3cret", "api_token": 7},
    "card": [{"number": "4242", "cvc": {"digits": 123}}, {"number": "1881"}],
    "note": "password",
    "cards": 2,
}

NAMES = st.sampled_from(["password", "card", "note", "a_token", "x"])
JSON = st.recursive(
    st.integers() | st.text(max_size=3) | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)


def test_a_field_is_masked_at_any_depth_with_all_that_is_in_it() -> None:
    assert MASKS.shown(PAYLOAD) == {
        "user": {"name": "ada", "Password": MASK, "api_token": MASK},
        "card": [{"number": MASK, "cvc": MASK}, {"number": MASK}],
        "note": "password",
        "cards": 2,
    }


def test_the_case_of_a_pattern_does_not_matter() -> None:
    masks = Masks(["apiToken", "Card.*"])

    payload = {"apiToken": 1, "apitoken": 2, "CARD": {"number": 3}}
    assert masks.shown(payload) == {"apiToken": MASK, "apitoken": MASK, "CARD": {"number": MASK}}


def test_a_pattern_of_several_names_is_the_end_of_a_path() -> None:
    masks = Masks(["user.card.number"])

    card = {"card": {"number": 4242, "name": "ada"}}
    masked = {"card": {"number": MASK, "name": "ada"}}
    assert masks.shown({"user": card, "order": {"user": card}}) == {
        "user": masked,
        "order": {"user": masked},
    }
    apart = {**card, "user": {"other": card}}
    assert masks.shown(apart) == apart


@given(JSON)
def test_what_was_not_edited_comes_back_as_it_was(payload: Any) -> None:
    shown, behind = MASKS.numbered(payload)

    assert MASKS.restored(shown, behind) == payload


def test_the_items_of_an_array_keep_their_own_values_when_they_change_places() -> None:
    shown, behind = MASKS.numbered(PAYLOAD)
    shown["card"].reverse()

    assert MASKS.restored(shown, behind)["card"] == list(reversed(PAYLOAD["card"]))  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        (lambda it: it["user"].pop("Password"), "«masked 1» is missing"),
        (lambda it: it["user"].update(Password="new"), "«masked 1» is missing"),
        (lambda it: it["card"].pop(0), "«masked 3», «masked 4» is missing"),
        (lambda it: it.update(note=it["user"].pop("Password")), "would be shown"),
        (lambda it: it["user"].update(x_token="«masked 1»"), "twice"),
        (lambda it: it["user"].update(x_token="«masked 99»"), "no «masked 99»"),
        (
            lambda it: it["user"].update(Password="«masked 2»", api_token="«masked 1»"),
            "«masked 2» belongs to user.api_token",
        ),
        (
            lambda it: (
                it["user"].update(Password=it["card"][0]["number"], api_token="«masked 2»")
                or it["card"][0].update(number="«masked 1»")
            ),
            "«masked 3» belongs to card.number",
        ),
    ],
)
def test_an_edit_that_loses_moves_or_doubles_one_is_refused(edit: Any, why: str) -> None:
    shown, behind = MASKS.numbered(PAYLOAD)
    edit(shown)

    with pytest.raises(EditRefused, match=why):
        MASKS.restored(shown, behind)


def test_a_payload_that_looks_masked_by_itself_is_not_edited() -> None:
    with pytest.raises(EditRefused, match="looks like"):
        MASKS.numbered({"note": "«masked 1»"})


def test_a_masked_value_that_looks_masked_is_no_reason_against_an_edit() -> None:
    """Nobody sees it: a number can't be taken for it."""
    payload = {"password": "«masked 1»"}

    assert MASKS.restored(*MASKS.numbered(payload)) == payload


@pytest.mark.parametrize("text", ["«masked 1» and more", "x«masked 1»", "«masked 01»"])
def test_text_around_a_number_is_text(text: str) -> None:
    with pytest.raises(EditRefused, match="«masked 1» is missing"):
        MASKS.restored({"password": text}, MASKS.numbered({"password": "s3cret"})[1])


@pytest.mark.parametrize("patterns", ["password", ["a..b"], [""], [7]])
def test_a_wrong_pattern_is_refused(patterns: Any) -> None:
    with pytest.raises(ConfigError, match="mask"):
        Masks(patterns)
