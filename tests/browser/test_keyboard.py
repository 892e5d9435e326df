"""The dashboard without a mouse: every control is reached by Tab, shows that it has the focus, and
every change is made with Enter and Space."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.support.dashboard import TOKEN

from .conftest import Site, Visits
from .test_dashboard_in_a_browser import PAGES, SAYS_SO, add_dead_letter

pytestmark = pytest.mark.timeout(300)

MAX_TABS = 400
COLLECT = """() => {
    const controls = 'a[href], button, input:not([type=hidden]), select, textarea, summary,'
        + ' [tabindex="0"]';
    window.expected = new Set([...document.querySelectorAll(controls)].filter(
        (each) => each.checkVisibility()));
}"""
REACHED = """() => {
    const now = document.activeElement;
    if (!now || now === document.body) return null;
    const style = getComputedStyle(now);
    const seen = style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2;
    const box = now.getBoundingClientRect();
    const inside = box.bottom > 0 && box.top < innerHeight
        && box.right > 0 && box.left < innerWidth;
    window.expected.delete(now);
    return {name: now.outerHTML.slice(0, 120), visible: seen && inside, left: window.expected.size};
}"""
LEFT = "() => [...window.expected].map((each) => each.outerHTML.slice(0, 120))"


class Keyboard:
    """A person who has nothing else."""

    def __init__(self, page: Page) -> None:
        self.page = page

    def reach(self, target: Locator) -> None:
        expect(target).to_have_count(1)
        wanted = target.element_handle()
        for _ in range(MAX_TABS):
            self.page.keyboard.press("Tab")
            if self.page.evaluate("(each) => each === document.activeElement", wanted):
                return
        raise AssertionError(f"Tab does not lead to {target}")

    def press(self, role: Any, name: str, key: str = "Enter") -> None:
        self.reach(self.page.get_by_role(role, name=name, exact=True))
        self.page.keyboard.press(key)

    def type(self, label: str, text: str) -> None:
        self.reach(self.page.get_by_label(label))
        self.page.keyboard.type(text)

    def status(self, text: str) -> None:
        expect(self.page.get_by_role("status").filter(has_text=text)).to_be_visible()


@pytest.fixture
def keyboard(visits: Visits) -> Keyboard:
    """Somebody who has signed in by it."""
    page = visits.stranger()
    page.goto("/login")
    keyboard = Keyboard(page)
    keyboard.type("Your name", "grace")
    keyboard.type("Token", TOKEN)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    return keyboard


def hold_still(page: Page) -> None:
    """The overview makes its parts anew all the time: no control would be there long enough.

    It is held as soon as it shows what is in the database.
    """
    if page.locator("#live").count():
        expect(page.locator("#listeners").get_by_role("link").first).to_be_visible()
        Keyboard(page).press("button", "Pause updates")
        expect(page.get_by_text("paused", exact=True)).to_be_visible()


def not_reached(page: Page, unseen: list[str]) -> list[str]:
    """Controls that Tab does not lead to, from here to the end and from the beginning to here.

    Those that do not show that they have the focus are added to *unseen*.
    """
    page.evaluate(COLLECT)
    ends = 0
    for _ in range(MAX_TABS):
        page.keyboard.press("Tab")
        reached = page.evaluate(REACHED)
        if reached is None:
            ends += 1
        elif not reached["visible"]:
            unseen.append(reached["name"])
        if ends == 2 or (reached and not reached["left"]):
            break
    left: list[str] = page.evaluate(LEFT)
    return left


def test_every_control_of_every_page_is_reached_and_shows_it(visits: Visits, site: Site) -> None:
    site.fill()
    page = visits.operator()

    visits.expected = (SAYS_SO,)
    for shown in PAGES:
        unseen: list[str] = []
        shown.open(page)
        hold_still(page)
        assert not_reached(page, unseen) == [], shown.name
        assert unseen == [], shown.name


def test_the_content_is_one_key_away(keyboard: Keyboard) -> None:
    keyboard.page.goto("/listeners")
    keyboard.press("link", "Skip to the content")
    keyboard.page.keyboard.press("Tab")

    inside = "document.querySelector('main').contains(document.activeElement)"
    assert keyboard.page.evaluate(inside)


def test_dead_letters_are_chosen_replayed_discarded_and_edited(
    keyboard: Keyboard, site: Site
) -> None:
    for listener in ("a", "b", "c", "d"):
        site.run("INSERT INTO outbox_listeners (name) VALUES (:name)", name=listener)
        add_dead_letter(site, "o-1", listener)
    page = keyboard.page

    page.goto("/dead-letters")
    keyboard.press("checkbox", "Dead letter 1", "Space")
    keyboard.reach(page.get_by_role("button", name="Discard chosen"))
    page.keyboard.press("Space")
    keyboard.type("Why", "no longer needed")
    keyboard.press("button", "Discard 1 dead letter")
    keyboard.status("1 discarded.")

    page.goto("/dead-letters/2")
    keyboard.press("button", "Replay", "Space")
    keyboard.status("1 replayed.")

    page.goto("/dead-letters/3")
    keyboard.press("link", "Edit and replay")
    keyboard.type("Payload", " ")
    keyboard.press("button", "Compare")
    keyboard.press("button", "Save and replay")
    keyboard.status("1 replayed.")

    page.goto("/dead-letters/4")
    keyboard.press("button", "Mark as fixed …")
    keyboard.press("button", "Mark as fixed 1 dead letter")
    keyboard.status("1 marked as fixed.")


def test_a_listener_is_paused_resumed_and_moved(keyboard: Keyboard, site: Site) -> None:
    site.run("INSERT INTO outbox_listeners (name) VALUES ('mailer')")
    page = keyboard.page
    page.goto("/listener?name=mailer")

    keyboard.press("button", "Pause")
    keyboard.status("Paused.")
    keyboard.press("button", "Resume", "Space")
    keyboard.status("Resumed.")
    keyboard.type("Position, time in UTC", "beginning")
    page.keyboard.press("Enter")
    keyboard.press("button", "Rewind")
    keyboard.status("Rewound.")


def test_deliveries_are_retried_and_cancelled(keyboard: Keyboard, site: Site) -> None:
    site.run("INSERT INTO outbox_listeners (name) VALUES ('mailer')")
    site.run(
        "INSERT INTO outbox_deliveries (listener, position, event_id, event_type, state, due_at,"
        " attempts) SELECT 'mailer', n, gen_random_uuid(), 'order.placed', 'scheduled',"
        " now() + interval '1 hour', 1 FROM generate_series(1, 2) AS n"
    )
    page = keyboard.page
    for number, act, outcome in ((1, "Retry", "due now"), (2, "Cancel", "cancelled")):
        page.goto("/deliveries")
        keyboard.press("checkbox", f"Delivery {number} of mailer", "Space")
        keyboard.reach(page.get_by_role("button", name=f"{act} chosen"))
        page.keyboard.press("Enter")
        suffix = " now" if act == "Retry" else ""
        keyboard.press("button", f"{act} 1 delivery{suffix}")
        keyboard.status(f"1 {outcome}.")

    states = "SELECT string_agg(state, ' ' ORDER BY position) FROM outbox_deliveries"
    assert site.value(states) == "scheduled cancelled"
    assert site.value("SELECT due_at < clock_timestamp() FROM outbox_deliveries WHERE position = 1")


def test_a_cron_is_run_and_an_endpoint_disabled(keyboard: Keyboard, site: Site) -> None:
    site.run("INSERT INTO outbox_crons (name, last_tick) VALUES ('sweep', now())")
    site.run("INSERT INTO outbox_endpoints (name, url) VALUES ('acme', 'https://acme.example')")
    page = keyboard.page

    page.goto("/crons")
    keyboard.press("button", "Run sweep now …")
    keyboard.type("Why", "the disk is full")
    keyboard.press("button", "Run now", "Space")
    keyboard.status("It was run")
    assert site.value("SELECT count(*) FROM outbox WHERE event_type = 'sweep'") == 1

    page.goto("/endpoints")
    keyboard.press("link", "acme")
    keyboard.press("button", "Disable")
    keyboard.status("Disabled.")
    keyboard.press("button", "Enable", "Space")
    keyboard.status("Enabled.")


def test_searching_paging_and_signing_out(keyboard: Keyboard, site: Site) -> None:
    site.run(
        "INSERT INTO outbox_audit (action, actor_id) SELECT 'paused', 'ada'"
        " FROM generate_series(1, 60)"
    )
    page = keyboard.page
    page.goto("/audit")

    keyboard.type("Actor", "ada")
    keyboard.press("button", "Search")
    keyboard.press("link", "Next page →")
    expect(page.get_by_role("table", name="Audit").get_by_role("row")).to_have_count(11)
    keyboard.press("link", "⇤ First page")
    expect(page.get_by_role("table", name="Audit").get_by_role("row")).to_have_count(51)
    keyboard.press("button", "Sign out")
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
