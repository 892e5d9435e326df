"""The documentation says what is, not what is to come: such sentences are forgotten, and lie."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PAGES = [
    *sorted((ROOT / "docs").rglob("*.md")),
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")),
]
PROMISE = re.compile(
    r"\b(?:(?:later|future|coming|next) (?:release|version)s?|for now|not (?:yet )?(?:implemented|"
    r"supported|available|tested) yet|there (?:is|are) (?:no|not)\b[^.:;]* yet"
    r"|(?:has|have) no [a-z ]{1,40} yet|(?:is|are) planned|coming soon)\b",
    re.IGNORECASE,
)


def promises(text: str) -> list[str]:
    return [each.group() for each in PROMISE.finditer(" ".join(text.split()))]


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
