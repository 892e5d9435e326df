"""Links between the pages lead somewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

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


def test_links_lead_somewhere() -> None:
    broken = [
        f"{name_of(page)}: {target.name}#{anchor or ''}"
        for page in PAGES
        for target, anchor in links(page)
        if not target.exists() or (anchor is not None and anchor not in anchors(target))
    ]

    assert broken == []


def test_pages_of_the_site_link_to_nothing_outside_of_it() -> None:
    outside = [
        f"{name_of(page)}: {target}"
        for page in (ROOT / "docs").rglob("*.md")
        for target, _ in links(page)
        if not target.is_relative_to(ROOT / "docs")
    ]

    assert outside == []


def test_every_page_is_reached_from_the_first() -> None:
    reached, waiting = set(), [ROOT / "docs" / "index.md"]
    while waiting:
        page = waiting.pop()
        if page not in reached:
            reached.add(page)
            waiting += [target for target, _ in links(page) if target.suffix == ".md"]

    assert reached == set((ROOT / "docs").rglob("*.md"))
