"""Links between the pages lead somewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

FENCED = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:|mailto:)(?P<path>[^)#\s]*)(?:#(?P<anchor>[^)\s]+))?\)")
HEADING = re.compile(r"^#+ +(?P<title>.+)$", re.MULTILINE)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def prose(page: Path) -> str:
    return FENCED.sub("", page.read_text())


def links(page: Path) -> Iterator[tuple[Path, str | None]]:
    for link in LINK.finditer(prose(page)):
        target = page if not link["path"] else (page.parent / link["path"]).resolve()
        yield target, link["anchor"]


def anchors(page: Path) -> set[str]:
    """What GitHub and the site make of a heading; both agree on words and hyphens."""
    titles = (heading["title"] for heading in HEADING.finditer(prose(page)))
    return {re.sub(r"[^\w\- ]", "", title).strip().lower().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_of_the_page_lead_somewhere(page: Path) -> None:
    for target, anchor in links(page):
        assert target.exists(), target
        assert anchor is None or anchor in anchors(target), f"{target.name}#{anchor}"


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=name_of)
def test_pages_of_the_site_link_to_nothing_outside_of_it(page: Path) -> None:
    for target, _ in links(page):
        assert target.is_relative_to(ROOT / "docs"), target


def test_every_page_is_reached_from_the_first() -> None:
    reached, waiting = set(), [ROOT / "docs" / "index.md"]
    while waiting:
        page = waiting.pop()
        if page not in reached:
            reached.add(page)
            waiting += [target for target, _ in links(page) if target.suffix == ".md"]

    assert reached == set((ROOT / "docs").glob("*.md"))
