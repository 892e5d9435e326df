"""Elements: text is text, and nothing that could run or lead away can be said."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sa_outbox.dashboard import html as h
from sa_outbox.dashboard.comparison import compare
from sa_outbox.dashboard.mask import EditRefused
from sa_outbox.dashboard.payloads import parse, parse_edited, plain, pretty
from sa_outbox.dashboard.views.chart import MAX_POINTS, Line, chart, nice, thinned
from sa_outbox.dashboard.views.parts import counted, span, value


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 listeners"), (1, "1 listener"), (1234, "1,234 listeners")]
)
def test_one_is_singular(number: int, text: str) -> None:
    assert counted(number, "listener") == text


def test_text_and_attributes_are_escaped() -> None:
    made = h.p("<b>&'\"", title='"><script>', class_="note")

    assert str(made) == (
        '<p title="&quot;&gt;&lt;script&gt;" class="note">&lt;b&gt;&amp;&#x27;&quot;</p>'
    )


@given(st.text())
def test_no_text_makes_an_element(text: str) -> None:
    made = str(h.div(h.bdi(text), title=text))

    assert made.count("<") == 4
    assert made.count(">") == 4


def test_none_and_false_leave_out_and_true_stands_alone() -> None:
    assert str(h.input_(None, value=None, checked=False, required=True)) == "<input required>"
    assert str(h.ul([h.li("a"), None, [h.li(1)]])) == "<ul><li>a</li><li>1</li></ul>"


@pytest.mark.parametrize(
    "address",
    [
        "javascript:alert(1)",
        "//elsewhere",
        "/\\elsewhere",
        "https://elsewhere",
        "",
        " /x",
        "data:,",
    ],
)
def test_an_address_that_leads_out_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="leads out"):
        h.a("x", href=address)


@pytest.mark.parametrize("name", ["onclick", "onload", "style"])
def test_an_attribute_that_would_run_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="the policy"):
        h.div(**{name: "x"})


def test_what_turns_the_text_around_it_is_shown_as_its_number() -> None:
    assert str(value("a\u202eb\x1b")) == "<bdi>a\\u202eb\\u001b</bdi>"


class TestJson:
    def test_numbers_keep_their_digits(self) -> None:
        text = '{"a": 1.10, "b": 12345678901234567890.123456789, "c": [1e400, -0, true, null]}'

        wanted = (
            '{ "a": 1.10, "b": 12345678901234567890.123456789, "c": [ 1e400, -0, true, null ] }'
        )
        assert " ".join(pretty(parse(text)).split()) == wanted

    def test_a_number_that_an_edit_would_round_is_refused(self) -> None:
        assert plain(parse('{"a": 1.10, "b": [10, -3, 1e3]}')) == {"a": 1.1, "b": [10, -3, 1000.0]}
        for digits in ("12345678901234567890.123456789", "1e400", "9" * 5000):
            with pytest.raises(EditRefused, match="would not be kept"):
                plain(parse(f"[{digits}]"))

    @pytest.mark.parametrize(
        ("text", "why"),
        [
            ("{", "line 1 column 2"),
            ('{"a": NaN}', "NaN is not JSON"),
            ('{"a": 1, "a": 2}', "'a' is there twice"),
            ("[" * 200_000, "nested too deeply"),
        ],
        ids=["cut off", "NaN", "twice", "deep"],
    )
    def test_what_is_not_json_is_told_with_its_place(self, text: str, why: str) -> None:
        with pytest.raises(EditRefused, match=why):
            parse_edited(text)

    def test_a_comparison_says_what_went_and_what_came(self) -> None:
        assert compare("a\nb\nc", "a\nx\nc") == [
            ("same", "a"),
            ("removed", "b"),
            ("added", "x"),
            ("same", "c"),
        ]


class TestChart:
    def test_a_scale_ends_at_a_round_figure(self) -> None:
        assert [nice(each) for each in (0, 0.03, 1, 7, 11, 4900)] == pytest.approx(
            [1, 0.05, 1, 10, 20, 5000]
        )

    def test_the_highest_point_is_never_thinned_out(self) -> None:
        begin = datetime(2026, 1, 1, tzinfo=UTC)
        points = [(begin + timedelta(seconds=n), float(n == 777)) for n in range(1000)]

        kept = thinned(points)

        assert len(kept) <= MAX_POINTS
        assert max(each for _, each in kept) == 1.0
        assert kept[-1] == points[-1]

    def test_a_picture_says_in_words_what_it_shows(self) -> None:
        begin = datetime(2026, 1, 1, tzinfo=UTC)
        line = Line("<mailer>", [(begin, 0.0), (begin + timedelta(seconds=2), 75.0)], 1)

        made = str(chart("Lag", "seconds", [line], span))

        assert 'aria-label="Lag, seconds, since 00:00:00 UTC. Now: &lt;mailer&gt; 75 s."' in made
        assert "<mailer>" not in made
