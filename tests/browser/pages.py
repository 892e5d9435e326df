"""Every page of the dashboard, and the way to it. A test compares them with its routes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote

from playwright.sync_api import Page

LETTER = "/dead-letters/{id:int}"
NO_PAGES = {
    "GET /live": "a stream",
    "GET /static/{name}": "a file",
    "POST /listener/pause": "leads to the listener",
    "POST /listener/resume": "leads to the listener",
    "POST /listener/move": "leads to the listener",
    "POST /deliveries/act": "leads to the deliveries",
    "POST /dead-letters/act": "leads to the dead letters",
    f"POST {LETTER}/edit": "leads to the dead letter",
    "POST /crons/run": "leads to the crons",
    "POST /endpoint/enable": "leads to the endpoint",
    "POST /endpoint/disable": "leads to the endpoint",
    "POST /logout": "leads to the form to sign in",
}
"""Routes that show nothing, and why."""


@dataclass(frozen=True)
class Step:
    """What is done to the first thing that has this role and a name like this."""

    act: str
    role: str
    name: str
    value: str = ""

    def take(self, page: Page) -> None:
        target = page.get_by_role(self.role, name=re.compile(self.name)).first  # type: ignore[arg-type]
        if self.act == "fill":
            target.fill(self.value)
        elif self.act == "change":
            old, new = self.value.split("->")
            before = target.input_value()
            assert re.search(old, before), before
            target.fill(re.sub(old, lambda _: new, before, count=1))
        elif self.act == "check":
            target.check()
        else:
            target.click()


@dataclass(frozen=True)
class Shown:
    """One page: the route that shows it, where one begins, and what one does there."""

    name: str
    route: str
    path: str
    steps: tuple[Step, ...] = ()

    def open(self, page: Page) -> None:
        page.goto(self.path)
        for step in self.steps:
            step.take(page)
        page.wait_for_load_state()


@dataclass(frozen=True)
class There:
    """What is in the database and in the program, by which pages are found."""

    listener: str
    endpoint: str
    event_id: str
    event_type: str
    """One of the catalogue."""
    edit: str
    """Of the payload of dead letter 1: a pattern, an arrow, and what stands there then."""


def pages(there: There) -> list[Shown]:
    return [*_looking(there), *_changing(there), *_refusing(there)]


def _looking(there: There) -> list[Shown]:
    def seen(name: str, route: str, path: str = "") -> Shown:
        return Shown(name, f"GET {route}", path or route)

    return [
        seen("overview", "/"),
        seen("listeners", "/listeners"),
        seen("listener", "/listener", f"/listener?name={quote(there.listener)}"),
        seen("durations", "/durations"),
        seen("deliveries", "/deliveries"),
        seen("events", "/events"),
        seen("event", "/events/{event_id}", f"/events/{there.event_id}"),
        seen("dead-letters", "/dead-letters", "/dead-letters?resolution=any"),
        seen("dead-letter-groups", "/dead-letters", "/dead-letters?group=error&resolution=any"),
        seen("dead-letter", LETTER, "/dead-letters/1"),
        seen("another-dead-letter", LETTER, "/dead-letters/2"),
        seen("edit", f"{LETTER}/edit", "/dead-letters/1/edit"),
        seen("crons", "/crons"),
        seen("endpoints", "/endpoints"),
        seen("endpoint", "/endpoint", f"/endpoint?name={quote(there.endpoint)}"),
        seen("catalogue", "/catalogue"),
        seen("event-type", "/catalogue/type", f"/catalogue/type?name={quote(there.event_type)}"),
        seen("audit", "/audit"),
        seen("login", "/login"),
    ]


def _changing(there: There) -> list[Shown]:
    """What is asked before something is changed; nothing is."""
    position = Step("fill", "textbox", "^Position", "beginning")
    payload = Step("change", "textbox", "^Payload", there.edit)
    compare = Step("click", "button", "^Compare$")
    listener, edit = f"/listener?name={quote(there.listener)}", "/dead-letters/1/edit"
    move, run = Step("click", "button", "^Move"), Step("click", "button", "^Run .*now")
    again = Step("click", "button", "^Edit again$")
    letter, delivery = Step("check", "checkbox", "^Dead l"), Step("check", "checkbox", "^Delivery")
    discard = Step("click", "button", "^Discard chosen")
    cancel = Step("click", "button", "^Cancel chosen")
    return [
        Shown("move-listener", "POST /listener/confirm", listener, (position, move)),
        Shown("discard", "POST /dead-letters/confirm", "/dead-letters", (letter, discard)),
        Shown("cancel", "POST /deliveries/confirm", "/deliveries", (delivery, cancel)),
        Shown("run-cron", "POST /crons/confirm", "/crons", (run,)),
        Shown("compare", f"POST {LETTER}/compare", edit, (payload, compare)),
        Shown("edit-again", f"POST {LETTER}/edit-again", edit, (payload, compare, again)),
    ]


def _refusing(there: There) -> list[Shown]:
    """What is said when something is wrong."""
    discard = Step("click", "button", "^Discard chosen")
    no_json = Step("fill", "textbox", "^Payload", "no JSON")
    compare, sign_in = Step("click", "button", "^Compare$"), Step("click", "button", "^Sign in$")
    name, token = (Step("fill", "textbox", f"^{each}", "x") for each in ("Your name", "Token"))
    return [
        Shown("nowhere", "GET (none)", "/nowhere"),
        Shown("no-such-event-type", "GET /catalogue/type", "/catalogue/type?name=x"),
        Shown("no-such-listener", "GET /listener", "/listener?name=nobody"),
        Shown("nothing-chosen", "POST /dead-letters/confirm", "/dead-letters", (discard,)),
        Shown(
            "refused-edit",
            f"POST {LETTER}/compare",
            "/dead-letters/1/edit",
            (no_json, compare),
        ),
        Shown("refused-sign-in", "POST /login", "/login", (name, token, sign_in)),
    ]
