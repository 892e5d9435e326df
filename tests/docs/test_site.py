"""The site: four parts for readers and one for contributors, and llms.txt lists all pages."""

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
MEASURED = re.compile(r"(eventsourcing|pgqueuer|procrastinate) (\d+\.\d+)")
PEERS = sorted({*(ROOT / "docs" / "compare").glob("[!iw]*.md")})


def test_the_navigation_has_four_parts_and_one_for_contributors() -> None:
    parts = [name for entry in SITE["nav"] for name in entry]

    assert parts == ["Tutorial", "Recipes", "Explanation", "Reference", "Contributing"]


def test_every_page_is_in_the_navigation_once() -> None:
    pages = [str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")]

    assert Counter(pages_of(SITE["nav"])) == Counter(pages)


def test_the_pages_that_answer_questions_exist() -> None:
    entries = tomllib.loads((ROOT / "tests" / "docs" / "questions.toml").read_text())["questions"]
    pages = {page for entry in entries for page in entry["answered_by"]}

    assert sorted(page for page in pages if not (ROOT / "docs" / page).is_file()) == []


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


def test_a_comparison_names_all_that_we_depend_on() -> None:
    ours = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    (row,) = re.findall(
        r"^\| depends on .*", (ROOT / "docs" / "compare" / "pgqueuer.md").read_text(), re.MULTILINE
    )

    named = re.findall(r"[\w-]+", row.split("|")[-2].lower())
    assert sorted(named) == sorted(re.findall(r"^[\w-]+", each)[0] for each in ours)


@pytest.mark.parametrize("page", PEERS, ids=name_of)
def test_a_comparison_names_the_versions_that_were_measured(page: Path) -> None:
    """Of what was measured: the major and minor version."""
    measured = dict(MEASURED.findall((ROOT / "docs" / "performance.md").read_text()))
    (checked,) = re.findall(r"^Checked in .*(?:\n.+)*", page.read_text(), re.MULTILINE)

    named = [name for name in measured if re.search(rf"\b{name}\b", checked, re.IGNORECASE)]
    for name in named:
        assert re.search(rf"\b{re.escape(measured[name])}\b", checked), measured[name]
