"""The documentation says what is, not what is to come: such sentences are forgotten, and lie."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.charts import PLACEHOLDER

ROOT = Path(__file__).parent.parent.parent
PAGES = [
    *sorted((ROOT / "docs").rglob("*.md")),
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")),
]
UNMEASURED = re.compile(
    r"\b(?:not (?:yet )?(?:been )?measured|(?:yet )?to be measured|unmeasured|no figures yet)\b",
    re.IGNORECASE,
)
ALLOWED_UNMEASURED = {
    ("docs/performance.md", "A long log, an old snapshot, nothing to do"): (
        "make bench-long needs a machine that does nothing else"
    ),
}
"""Page and heading, and why nothing was measured yet. A heading whose figures are there is removed
from here, so that the next one that lacks some is noticed."""
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
PROMISE = re.compile(
    r"\b(?:(?:later|future|coming|next) (?:release|version)s?|for now|not (?:yet )?(?:implemented|"
    r"supported|available|tested) yet|there (?:is|are) (?:no|not)\b[^.:;]* yet"
    r"|(?:has|have) no [a-z ]{1,40} yet|(?:is|are) planned|coming soon)\b",
    re.IGNORECASE,
)


def promises(text: str) -> list[str]:
    return [each.group() for each in PROMISE.finditer(" ".join(text.split()))]


def unmeasured(text: str) -> set[str]:
    """The headings below which something says that it was not measured."""
    _, *parts = HEADING.split(f"# \n{text}")
    found = zip(parts[::2], parts[1::2], strict=True)
    return {heading for heading, below in found if UNMEASURED.search(" ".join(below.split()))}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_no_page_promises_what_there_is_not(page: Path) -> None:
    assert promises(page.read_text()) == []


@pytest.mark.parametrize(
    "sentence",
    [
        "A later release will let handlers return a value.",
        "For now, pause it in SQL.",
        "There is no health\nendpoint yet.",
        "There are not many commands for them yet.",
        "It has no command for them yet.",
    ],
)
def test_a_promise_is_found(sentence: str) -> None:
    assert promises(sentence)


def test_nothing_is_published_unmeasured_without_a_reason() -> None:
    found = {
        (page.relative_to(ROOT).as_posix(), heading)
        for page in PAGES
        for heading in unmeasured(page.read_text())
    }

    assert found - ALLOWED_UNMEASURED.keys() == set(), "measure it, or say why not"
    assert ALLOWED_UNMEASURED.keys() - found == set(), "it is measured: take it off the list"


@pytest.mark.parametrize(
    "text", [PLACEHOLDER, "It was not\nmeasured.", "Memory: yet to be measured.", "No figures yet"]
)
def test_what_was_not_measured_is_found_with_its_heading(text: str) -> None:
    assert unmeasured(f"# Speed\n\n12 ms\n\n## Memory\n\n{text}\n\n## Other\n\n3 MB") == {"Memory"}
