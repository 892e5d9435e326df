"""What axe-core finds on every page, light and dark, on a wide screen and on a phone."""

from __future__ import annotations

from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]

from .conftest import Site, Visits
from .test_dashboard_in_a_browser import PAGES, SAYS_SO

pytestmark = pytest.mark.timeout(300)

GRAVE = ("serious", "critical")


SIZES = {"wide": {"width": 1280, "height": 800}, "phone": {"width": 360, "height": 740}}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_has_a_serious_violation(
    visits: Visits, site: Site, scheme: str, size: str
) -> None:
    site.fill()
    page = visits.operator(color_scheme=scheme, viewport=SIZES[size])
    visits.expected = (SAYS_SO,)
    found: list[Any] = []

    for shown in PAGES:
        shown.open(page)
        answer = Axe().run(page).response
        assert answer["passes"], shown.name
        found += [
            (shown.name, each["id"], [node["target"] for node in each["nodes"]][:3])
            for each in answer["violations"]
            if each["impact"] in GRAVE
        ]

    assert found == []


def test_a_serious_violation_would_be_found(visits: Visits) -> None:
    page = visits.operator()
    page.evaluate("document.querySelector('main').append(document.createElement('input'))")

    found = {each["id"]: each["impact"] for each in Axe().run(page).response["violations"]}

    assert found.get("label") in GRAVE
