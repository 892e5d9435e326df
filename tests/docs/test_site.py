"""The site: four parts, recipes apart from guides, and llms.txt lists all pages."""

from __future__ import annotations

import os
import re
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from docs import make_llms
from docs.make_llms import pages_of

from .test_code_blocks import name_of

ROOT = Path(__file__).parents[2]
SITE = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]
MEASURED = re.compile(r"(eventsourcing|pgqueuer|procrastinate) (\d+\.\d+)")
PEERS = sorted({*(ROOT / "docs" / "compare").glob("[!iw]*.md")})


def part(name: str) -> Any:
    (found,) = (entry[name] for entry in SITE["nav"] if name in entry)
    return found


def groups(entries: list[dict[str, Any]]) -> list[tuple[str, list[str]]]:
    """The groups among the entries of the navigation, each with its pages."""
    return [
        (name, list(pages_of(target)))
        for entry in entries
        for name, target in entry.items()
        if not isinstance(target, str)
    ]


def listed(text: str, page: Path) -> list[tuple[str, list[str]]]:
    """The groups of a list, which have titles in bold, each with the pages it links to."""
    _, *parts = re.split(r"^\*\*(.+)\*\*$", text, flags=re.MULTILINE)
    links = (re.findall(r"\]\(([\w./-]+\.md)\)", each) for each in parts[1::2])
    pages = [
        [os.path.relpath(page.parent / link, ROOT / "docs") for link in each] for each in links
    ]
    return list(zip(parts[::2], pages, strict=True))


def test_the_navigation_has_four_parts_and_contributing_is_the_end_of_the_last() -> None:
    parts = [name for entry in SITE["nav"] for name in entry]

    assert parts == ["Tutorial", "Recipes", "Explanation", "Reference"]
    assert groups(part("Reference"))[-1][0] == "Contributing"


def test_recipes_and_guides_are_apart_in_the_navigation() -> None:
    first, *recipes, guides = part("Recipes")

    assert list(first.values()) == ["recipes/index.md"]
    assert [each for each in pages_of(recipes) if not each.startswith("recipes/")] == []
    assert list(guides) == ["Guides"]
    assert [each for each in pages_of([guides]) if each.startswith("recipes/")] == []


def test_the_list_of_recipes_and_guides_is_that_of_the_navigation() -> None:
    page = ROOT / "docs" / "recipes" / "index.md"
    recipes, guides = page.read_text().split("\n## Guides\n")
    _, *in_menu, of_guides = part("Recipes")

    assert listed(recipes, page) == groups(in_menu)
    assert listed(guides, page) == groups(of_guides["Guides"])


def test_every_page_is_in_the_navigation_once() -> None:
    pages = [str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")]

    assert Counter(pages_of(SITE["nav"])) == Counter(pages)


@pytest.mark.parametrize(("file", "least"), [("questions", 46), ("questions_held_out", 30)])
def test_the_pages_that_answer_questions_exist(file: str, least: int) -> None:
    entries = tomllib.loads((ROOT / "tests" / "docs" / f"{file}.toml").read_text())["questions"]
    pages = {page for entry in entries for page in entry["answered_by"]}

    assert len(entries) >= least

    assert sorted(page for page in pages if not (ROOT / "docs" / page).is_file()) == []


def test_no_question_is_in_both_lists() -> None:
    texts = [
        (ROOT / "tests" / "docs" / f"{file}.toml").read_text()
        for file in ("questions", "questions_held_out")
    ]
    tuned, held_out = ({each["ask"] for each in tomllib.loads(text)["questions"]} for text in texts)

    assert tuned & held_out == set()


def test_every_question_has_a_short_answer_with_a_link_to_the_page_that_has_it_all() -> None:
    _, *sections = re.split("^### ", (ROOT / "docs" / "questions.md").read_text(), flags=re.M)

    assert len(sections) >= 40
    for section in sections:
        heading, _, answer = section.partition("\n")
        assert heading.endswith("?"), heading
        assert re.search(r"\]\([\w./-]+\.md", answer), heading
        assert len(answer.partition("\n## ")[0].split()) <= 60, heading


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
