"""The pictures that `make screenshots` makes."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import anyio
import pytest

from .chromium import chromium
from .pages import There, pages
from .screenshots import LOOKS, PICTURES, Pictures, main

pytestmark = pytest.mark.skipif(
    chromium() is None, reason="no Chromium on the PATH: `make programs` installs it"
)
SHOWN = pages(There("a", "b", "c", "d", "e->f"))


def test_those_of_the_documentation_are_of_pages_that_exist() -> None:
    taken = Pictures(Path("docs/images")).of(SHOWN)

    assert [name for name, _, _ in taken] == [name for name, _, _ in PICTURES]


@pytest.mark.long
@pytest.mark.timeout(600)
def test_every_page_is_taken_light_dark_and_on_a_phone(tmp_path: Path) -> None:
    anyio.run(main, Pictures(tmp_path, every_page=True), 0)

    names = {f"{each.name}-{look}.png" for each, look in product(SHOWN, LOOKS)}
    assert len(names) > 80
    assert {each.name for each in tmp_path.iterdir()} == names
    assert min(each.stat().st_size for each in tmp_path.iterdir()) > 5_000
