"""What a person sees and does, in a real browser."""

from __future__ import annotations

import re
from uuid import uuid4

import pytest
from playwright.sync_api import Page, expect
from starlette.routing import Route

from sa_outbox import Outbox
from sa_outbox.dashboard import Dashboard
from sa_outbox.dashboard.urls import router
from tests.support.dashboard import EVENT_ID, MARKUP, TOKEN

from .conftest import Site, Visits
from .pages import NO_PAGES, There, pages

pytestmark = pytest.mark.timeout(180)

IN_A_BROWSER = There(MARKUP, MARKUP, EVENT_ID, "sweep", edit='{->{"added": 1, ')
PAGES = pages(IN_A_BROWSER)
STORED = [
    each
    for each in PAGES
    if each.route.startswith("GET") and not re.match("login|catalogue|event-type|no", each.name)
]
"""Pages of what is in the database."""
SAYS_SO = "Failed to load resource"
"""What Chromium writes about a page that says that something is wrong."""
DEAD = """
INSERT INTO outbox_dead_letters
    (listener, position, event_id, event_type, key, payload, event_created_at, reason, attempts,
     errors)
VALUES (:listener, 1, :event_id, 'order.placed', :key, '{"total": 1.10, "secret": "hush"}', now(),
        'attempts', 1, '[{"attempt": 1, "code": "boom", "error": "E", "message": "it broke"}]')
"""


def add_event(site: Site, key: str) -> None:
    site.run(
        "INSERT INTO outbox (event_id, event_type, key, tenant, payload)"
        " VALUES (:id, 'order.placed', :key, 'acme', '{\"total\": 1.10}')",
        id=uuid4(),
        key=key,
    )


def add_dead_letter(site: Site, key: str, listener: str = "mailer") -> None:
    site.run(DEAD, listener=listener, event_id=uuid4(), key=key)


def test_the_overview_changes_without_being_loaded_again(operator: Page, site: Site) -> None:
    expect(operator.get_by_text("live", exact=True)).to_be_visible()
    tile = operator.get_by_role("link", name=re.compile("Dead letters.*are open"))
    expect(tile).to_have_count(0)

    add_dead_letter(site, "o-1")

    expect(tile).to_be_visible()
    expect(operator.get_by_role("cell", name="mailer")).to_be_visible()
    operator.get_by_role("button", name="Pause updates").click()
    expect(operator.get_by_role("button", name="Resume updates")).to_be_visible()


def test_an_event_is_searched_for_and_looked_at(operator: Page, site: Site) -> None:
    for key in ("o-1", "o-2"):
        add_event(site, key)
    operator.get_by_role("link", name="Events", exact=True).click()
    operator.get_by_label("Key").fill("o-1")
    operator.get_by_role("button", name="Search").click()

    rows = operator.get_by_role("table", name="Events").get_by_role("row")
    expect(rows).to_have_count(2)  # with its head
    rows.nth(1).get_by_role("link").click()

    expect(operator.get_by_role("heading", name="order.placed")).to_be_visible()
    expect(operator.get_by_role("region", name="Payload")).to_contain_text('"total": 1.10')


def test_a_dead_letter_is_edited_compared_and_replayed(operator: Page, site: Site) -> None:
    site.run("INSERT INTO outbox_listeners (name) VALUES ('mailer')")
    add_dead_letter(site, "o-1")
    operator.goto("/dead-letters/1")
    operator.get_by_role("link", name="Edit and replay").click()
    editor = operator.get_by_label("Payload")
    expect(editor).to_have_value(re.compile("«masked 1»"))
    editor.fill(editor.input_value().replace("1.10", "2.20"))
    operator.get_by_role("button", name="Compare").click()
    expect(operator.locator("ins")).to_contain_text('"total": 2.20')
    operator.get_by_label("Why").fill("the price was wrong")
    operator.get_by_role("button", name="Save and replay").click()

    expect(operator.get_by_role("status")).to_have_text("1 replayed.")
    expect(operator.get_by_text("the price was wrong")).to_be_visible()
    expect(operator.get_by_role("button", name="Replay")).to_have_count(0)
    assert site.value("SELECT payload->>'secret' FROM outbox_dead_letters") == "hush"
    assert site.value("SELECT count(*) FROM outbox_deliveries WHERE listener = 'mailer'") == 1


def test_chosen_dead_letters_are_discarded_after_a_second_look(operator: Page, site: Site) -> None:
    for number in range(3):
        add_dead_letter(site, f"o-{number}")
    operator.goto("/dead-letters")
    operator.get_by_role("button", name="Choose all on this page").click()
    operator.get_by_role("checkbox", name="Dead letter 2").uncheck()
    operator.get_by_role("button", name="Discard chosen").click()
    expect(operator.get_by_role("heading", name="Discard 2 dead letters?")).to_be_visible()
    operator.get_by_role("button", name="Discard 2 dead letters").click()

    expect(operator.get_by_role("status")).to_have_text("2 discarded.")
    rows = operator.get_by_role("table", name="Dead letters").get_by_role("row")
    expect(rows).to_have_count(2)  # with its head
    assert site.value("SELECT count(*) FROM outbox_dead_letters WHERE resolution IS NULL") == 1


def test_a_listener_is_paused(operator: Page, site: Site) -> None:
    site.run("INSERT INTO outbox_listeners (name) VALUES ('mailer')")
    operator.goto("/listener?name=mailer")
    operator.get_by_role("button", name="Pause").click()

    expect(operator.get_by_role("status")).to_contain_text("Paused")
    expect(operator.get_by_role("button", name="Resume")).to_be_visible()


def test_markup_in_any_field_is_shown_as_text_and_runs_nothing(operator: Page, site: Site) -> None:
    site.fill()

    for each in STORED:
        each.open(operator)
        shown = operator.get_by_text("<script>alert(1)").locator("visible=true")
        expect(shown.first).to_be_visible()
        assert operator.locator("main img, main script").count() == 0
    operator.goto("/")
    expect(operator.get_by_text("live", exact=True)).to_be_visible()
    expect(operator.locator("#listeners")).to_contain_text(MARKUP[:30])
    assert operator.locator("main img, main script").count() == 0


def test_a_wrong_token_does_not_open_the_door(visits: Visits) -> None:
    visits.expected = ("status of 401",)
    page = visits.stranger()
    page.goto("/dead-letters")
    page.get_by_label("Your name").fill("mallory")
    page.get_by_label("Token").fill("a-guess-that-is-long-enough")
    page.get_by_role("button", name="Sign in").click()

    expect(page.get_by_role("alert")).to_have_text("That is not the token.")
    page.goto("/dead-letters")
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()


def test_a_form_without_its_token_is_refused(visits: Visits) -> None:
    visits.expected = ("status of 403",)
    page = visits.operator()
    page.evaluate("document.querySelector('input[name=form_token]').value = ''")
    page.get_by_role("button", name="Sign out").click()

    expect(page.get_by_role("alert")).to_contain_text("belongs to another session")
    page.goto("/")
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()


def test_the_keyboard_is_enough(operator: Page, site: Site) -> None:
    add_event(site, "o-1")
    operator.goto("/events")
    operator.keyboard.press("Tab")
    expect(operator.get_by_role("link", name="Skip to the content")).to_be_focused()
    operator.keyboard.press("Enter")
    operator.keyboard.press("Tab")
    field = operator.get_by_label("Type")
    expect(field).to_be_focused()
    assert field.evaluate("each => getComputedStyle(each).outlineStyle") == "solid"
    operator.keyboard.type("order.*")
    operator.keyboard.press("Enter")
    link = operator.get_by_role("table", name="Events").get_by_role("link")
    expect(link).to_have_text("order.placed")
    link.focus()
    operator.keyboard.press("Enter")

    expect(operator.get_by_role("heading", name="order.placed")).to_be_visible()


def test_a_phone_scrolls_in_one_direction_only(visits: Visits, site: Site) -> None:
    site.fill()
    page = visits.operator(viewport={"width": 360, "height": 740})

    visits.expected = (SAYS_SO,)
    for each in PAGES:
        each.open(page)
        wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert page.evaluate(wide) == 0, each.name


def test_every_route_has_its_page_in_these_tests() -> None:
    dashboard = Dashboard(Outbox(), "postgresql://nobody@127.0.0.1:1/none", token=TOKEN)
    routes = {
        f"{method} {route.path}"
        for route in router(dashboard, dashboard.running).routes
        if isinstance(route, Route) and route.methods
        for method in route.methods - {"HEAD"}
    }
    shown = {each.route for each in PAGES if each.name != "nowhere"}

    assert len(routes) > 30
    assert sorted(routes - shown) == sorted(NO_PAGES)
    assert shown <= routes
    assert len({each.name for each in PAGES}) == len(PAGES)


def test_the_dark_is_dark_and_can_be_read(visits: Visits) -> None:
    page = visits.operator(color_scheme="dark")
    colours = page.evaluate(
        "() => ['backgroundColor', 'color'].map(each => getComputedStyle(document.body)[each])"
    )

    back, front = (sum(map(int, re.findall(r"\d+", each)[:3])) for each in colours)
    assert back < 100
    assert front > 600


def test_without_a_script_everything_but_the_live_parts_is_there(
    visits: Visits, site: Site
) -> None:
    add_dead_letter(site, "o-1")
    page = visits.operator(java_script_enabled=False)
    page.get_by_role("navigation").get_by_role("link", name="Dead letters").click()
    page.get_by_role("link", name="order.placed").click()

    expect(page.get_by_role("heading", name="order.placed")).to_be_visible()
    expect(page.get_by_text("it broke")).to_be_visible()
    expect(page.get_by_role("region", name="Payload")).not_to_contain_text("hush")
