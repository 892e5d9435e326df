"""The site has four parts, every page is in one of them, and llms.txt lists them all."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from docs import make_llms
from docs.make_llms import pages_of

from .test_code_blocks import name_of

ROOT = Path(__file__).parents[2]
SITE = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]
PEERS = sorted({*(ROOT / "docs" / "compare").glob("[!iw]*.md")})


def test_the_navigation_has_four_parts() -> None:
    parts = [name for entry in SITE["nav"] for name in entry]

    assert parts == ["Tutorial", "Recipes", "Explanation", "Reference"]


def test_every_page_is_in_the_navigation_once() -> None:
    pages = [str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")]

    assert Counter(pages_of(SITE["nav"])) == Counter(pages)


def test_llms_txt_is_what_the_pages_say() -> None:
    assert make_llms.TARGET.read_text() == make_llms.text(), "run: make llms"


@pytest.mark.parametrize("page", PEERS, ids=name_of)
def test_a_comparison_has_a_date_and_says_when_to_choose_the_other(page: Path) -> None:
    text = page.read_text()

    assert re.search(r"^Checked in 20\d\d-\d\d: ", text, re.MULTILINE)
    choices = re.findall(r"^\*\*Choose (.+?) when\*\*", text, re.MULTILINE)
    assert len(choices) >= 2
    assert choices[-1] == "sa_outbox"
    assert choices[0] != "sa_outbox"
