"""The beginning of a query without anything in it that may be secret."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sa_outbox.doctor.query_shape import LONGEST, shape


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("", ""),
        ("COMMIT", "COMMIT"),
        ("select  *\n from t1", "select * from t1"),
        ("SELECT 4242 + 1.5e3, 0xFF", "SELECT ? + ?, ?"),
        ("UPDATE t SET a = $1 WHERE id = $2", "UPDATE t SET a = $1 WHERE id = $2"),
        ("ALTER ROLE a PASSWORD 'secret'", "ALTER ROLE a PASSWORD …"),
        (r"SELECT E'a\'secret'", "SELECT E…"),
        ("SELECT $$secret$$", "SELECT …"),
        ("SELECT $tag$secret$tag$", "SELECT …"),
        ('INSERT INTO "Shop"."t" VALUES (', 'INSERT INTO "Shop"."t" VALUES ('),
        ('SELECT "cut off', "SELECT …"),
        ("/* by 'Ada' */ SELECT 1 -- secret\n, 2", "SELECT ? , ?"),
        ("SELECT /* a /* nested */ secret */ 1", "SELECT ?"),
        ("SELECT /* never ended secret", "SELECT"),
    ],
)
def test_a_query_is_shown_up_to_its_first_literal(query: str, shown: str) -> None:
    assert shape(query) == shown


def test_a_long_query_is_cut() -> None:
    shown = shape("SELECT " + ", ".join(["a_column"] * 50))
    assert len(shown) == LONGEST
    assert shown.endswith("…")


@given(before=st.text(alphabet="ab '$/*-\\1,(\n"), after=st.text(alphabet="ab \"'$/*-\\1,(\n"))
def test_nothing_after_a_quote_is_shown(before: str, after: str) -> None:
    shown = shape(f"SELECT {before} 'zzz {after}")

    assert "z" not in shown
