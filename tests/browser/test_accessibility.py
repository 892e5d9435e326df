"""What axe-core finds on every page, light and dark, in a real browser."""

from __future__ import annotations

from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]

from tests.support.dashboard import add_harmful_rows

from .conftest import Site, Visits
from .test_dashboard_in_a_browser import PAGES

pytestmark = pytest.mark.timeout(180)

GRAVE = ("serious", "critical")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_has_a_serious_violation(visits: Visits, site: Site, scheme: str) -> None:
    add_harmful_rows(site.engine)
    page = visits.operator(color_scheme=scheme)
    found: list[Any] = []

    for path in [*PAGES, "/login"]:
        page.goto(path)
        answer = Axe().run(page).response
        assert answer["passes"], path
        found += [
            (path, each["id"], [node["target"] for node in each["nodes"]][:3])
            for each in answer["violations"]
            if each["impact"] in GRAVE
        ]

    assert found == []


def test_a_serious_violation_would_be_found(visits: Visits) -> None:
    page = visits.operator()
    page.evaluate("document.querySelector('main').append(document.createElement('input'))")

    found = {each["id"]: each["impact"] for each in Axe().run(page).response["violations"]}

    assert found.get("label") in GRAVE
