"""What a terminal is shown: aligned, narrow enough, and nothing that drives it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sa_outbox.cli.display import _width, document, escaped, span, table
from sa_outbox.cli.operator import parse_event, parse_moment


@given(st.text())
def test_nothing_that_is_shown_drives_the_terminal(text: str) -> None:
    shown = escaped(text)

    assert shown.isprintable()
    assert escaped(shown) == shown


def test_control_characters_and_directions_are_shown_by_their_number() -> None:
    assert escaped("\x1b[2Jé\u202e\n") == "\\x1b[2Jé\\u202e\\x0a"
    assert escaped(None) == ""


def test_columns_are_aligned_and_numbers_to_the_right() -> None:
    shown = click.unstyle(table(("NAME", "N"), [["a", 5], ["long", 10]], width=80))
    assert shown.splitlines() == ["NAME   N", "a      5", "long  10"]


@given(
    st.lists(st.tuples(st.text(max_size=60), st.integers(), st.text(max_size=9)), max_size=4),
    st.integers(min_value=30, max_value=90),
)
def test_a_table_is_no_wider_than_the_terminal(
    rows: list[tuple[str, int, str]], width: int
) -> None:
    lines = click.unstyle(table(("A", "B", "C"), rows, width=width)).splitlines()

    assert len(lines) == 1 + len(rows)
    cells = [_width(line) for line in lines]  # some characters take two, some none
    assert max(cells) <= max(width, 4 * 3 + 4)


def test_eleven_columns_fit_into_eighty_cells() -> None:
    row = [7, "2026-11-18 15:02:39Z", *["x" * 12] * 8, "an error with a long text " * 3]
    lines = click.unstyle(table([f"HEADER {n}" for n in range(11)], [row], width=80)).splitlines()

    assert max(map(len, lines)) <= 80


def test_where_there_is_no_room_empty_columns_are_left_out_first() -> None:
    headers, rows = ("TYPE", "KEY", "EVENT ID"), [["order.placed", None, "0123456789"]]

    assert click.unstyle(table(headers, rows, width=24)).splitlines() == [
        "TYPE          EVENT ID",
        "order.placed  0123456789",
    ]
    assert "KEY" in table(headers, rows, width=40)


def test_wide_characters_take_two_cells() -> None:
    shown = click.unstyle(table(("A", "B"), [["日本", "x"], ["abcd", "y"]], width=80))
    assert shown.splitlines()[1:] == ["日本  x", "abcd  y"]


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (None, "-"),
        (-1, "0ms"),
        (0.25, "250ms"),
        (59.9, "59s"),
        (60, "1m"),
        (200, "3m 20s"),
        (18600, "5h 10m"),
        (183600, "2d 3h"),
    ],
)
def test_spans_have_their_two_largest_units(seconds: float | None, shown: str) -> None:
    assert span(seconds) == shown


def test_fields_are_covered_at_any_depth() -> None:
    shown = document('{"a": {"card": [1]}, "b": [{"card": 2}], "c": 3}', ["card"])
    assert shown.count('"***"') == 2
    assert '"c": 3' in shown
    assert document("not json", ["card"]) == "***"
    assert document(None) == "-"


def test_a_time_is_given_with_its_zone_or_as_a_span_that_has_passed() -> None:
    assert parse_moment("2026-03-01T08:00Z") == datetime(2026, 3, 1, 8, tzinfo=UTC)
    before = datetime.now(UTC)
    assert before <= parse_moment("2h ago") + timedelta(hours=2) <= datetime.now(UTC)
    for wrong in ("2026-03-01T08:00", "yesterday", "5 parsecs", "99999999999w", ""):
        with pytest.raises(click.BadParameter):
            parse_moment(wrong)


def test_an_event_is_named_by_either_of_its_ids() -> None:
    assert parse_event("7") == {"position": 7}
    assert list(parse_event("01a1e658-e5f2-7edd-954e-c4dc42a9d48a")) == ["event_id"]
    with pytest.raises(click.BadParameter):
        parse_event("x")
