"""What was taken out and put in: exact, and quick whatever the texts are."""

from __future__ import annotations

from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sa_outbox.dashboard.comparison import AROUND, MAX_LINES, compare, shortened
from sa_outbox.dashboard.payloads import parse, pretty

LINES = st.lists(st.sampled_from(["a", "b", "}", "},", "x\u2028y"]), max_size=40).map("\n".join)


@given(LINES, LINES)
def test_both_texts_can_be_read_out_of_a_comparison(before: str, after: str) -> None:
    changes = compare(before, after)

    assert "\n".join(line for kind, line in changes if kind != "added") == before
    assert "\n".join(line for kind, line in changes if kind != "removed") == after


@given(LINES)
def test_a_text_compared_with_itself_has_no_change(text: str) -> None:
    assert {kind for kind, _ in compare(text, text)} == {"same"}


def test_one_changed_line_is_one_change() -> None:
    before = pretty({"a": [1, 1, 1], "b": {"c": "old"}, "d": [1, 1, 1]})

    changes = compare(before, before.replace("old", "new"))

    assert [each for each in changes if each[0] != "same"] == [
        ("removed", '    "c": "old"'),
        ("added", '    "c": "new"'),
    ]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (["0,"] * 20_000, ["0,", "1,"] * 10_000),
        (["0,", "1,"] * 10_000, ["1,", "0,", "0,"] * 7_000),
        ([str(n % 140) for n in range(20_000)], [str(n % 139) for n in range(20_000)]),
        ([str(n) for n in range(20_000)], [str(n) for n in reversed(range(20_000))]),
    ],
    ids=["equal lines", "two lines", "many lines", "turned round"],
)
def test_no_text_keeps_the_dashboard_busy(before: list[str], after: list[str]) -> None:
    began = process_time()

    compare("\n".join(before), "\n".join(after))

    assert process_time() - began < 2  # the best fit of these takes minutes


def test_what_stays_the_same_is_left_out_but_around_a_change() -> None:
    lines = [str(n) for n in range(1_000)]
    shown = shortened(compare("\n".join(lines), "\n".join([*lines[:500], "new", *lines[500:]])))

    assert [line for kind, line in shown if kind == "added"] == ["new"]
    assert [kind for kind, _ in shown].count("same") == 2 * AROUND
    assert [kind for kind, _ in shown].count("left out") == 2


def test_a_comparison_on_a_page_has_an_end_that_says_so() -> None:
    shown = shortened(compare("", "\n".join(str(n) for n in range(MAX_LINES + 10))))

    assert len(shown) == MAX_LINES + 1
    assert shown[-1] == ("left out", "... (11 more lines)")


@pytest.mark.parametrize(
    "character", ["\u202e", "\u2028", "\x85", "\u200b", "\U000e0041", "\ufeff"]
)
def test_what_would_turn_or_hide_text_is_shown_by_its_number(character: str) -> None:
    text = pretty({f"na{character}me": f"us{character}er"})

    assert character not in text
    assert text.count("\\u") in (2, 4)
    assert parse(text) == {f"na{character}me": f"us{character}er"}
