"""An address that needs no SQLAlchemy to be understood is understood as SQLAlchemy would."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sa_outbox.database_url import _PLAIN, plain_url
from sa_outbox.schema.connect import parse_url, shown


@given(st.from_regex(_PLAIN, fullmatch=True))
def test_what_is_plain_is_understood_alike(url: str) -> None:
    found, parsed = plain_url(url), parse_url(url)

    assert found is not None
    assert found.url == url
    assert found.password == parsed.password
    assert (found.user or None) == parsed.username
    assert (found.host, found.database) == (parsed.host, parsed.database)
    assert found.port == (parsed.port or 5432)
    assert found.has_options or not parsed.query
    assert found.shown == shown(parsed)
    assert parsed.drivername == "postgresql"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "nonsense",
        "mysql://u@h/d",
        "postgresql+psycopg://u@h/d",
        "postgresql://u:p%40ss@h/d",
        "postgresql://u:p@ss@h/d",
        "postgresql://u:p#ss@h/d",
        "postgresql://u:@h/d",
        "postgresql://u@h:x/d",
        "postgresql://u@h:0/d",
        "postgresql://u@[::1]/d",
        "postgresql://u@a,b/d",
        "postgresql://u@h",
        "postgresql://u@h/d?password=p%40ss",
        "postgresql://u@h/d\n",
        "postgresql://\u00fc@h/d",
    ],
)
def test_what_could_be_understood_in_two_ways_is_not_plain(url: str) -> None:
    assert plain_url(url) is None


def test_nothing_secret_is_shown() -> None:
    found = plain_url("postgres://ann:geheim@db.example:6432/shop?password=geheim")

    assert found is not None
    assert found.shown == "postgresql://ann@db.example:6432/shop"
