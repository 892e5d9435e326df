"""The page has a section for every finding, and only for findings."""

from __future__ import annotations

import re
from pathlib import Path

from sa_outbox.doctor import CODES

PAGE = Path(__file__).parents[2] / "docs" / "troubleshooting.md"


def test_every_finding_has_its_section() -> None:
    sections = re.findall(r"^### (.+)$", PAGE.read_text(), re.MULTILINE)

    assert sorted(sections) == sorted(CODES)
