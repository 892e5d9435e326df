"""When a database is a copy: pure."""

from __future__ import annotations

import pytest

from sa_outbox.schema.identity import Home, Identity


@pytest.mark.parametrize(
    ("stored", "present", "is_copy"),
    [
        ((7, 16384), (7, 16384), False),
        ((7, 16384), (8, 16384), True),
        ((7, 16384), (7, 16385), True),
        ((None, 16384), (7, 16384), False),  # not written down yet
        ((None, 16384), (7, 16385), True),
        ((None, 16384), (None, 16384), False),  # nobody may ask
        ((7, 16384), (None, 16384), True),  # nobody can tell
        ((None, None), (7, 16384), False),
    ],
)
def test_a_database_is_a_copy_when_what_was_written_down_is_not_what_is_seen(
    stored: tuple[int | None, int | None], present: tuple[int | None, int | None], *, is_copy: bool
) -> None:
    home = Home("shop", "ada", 1, Identity(*stored), Identity(*present))

    assert home.is_copy is is_copy
