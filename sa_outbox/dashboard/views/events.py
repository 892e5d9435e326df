"""Events: the search, and one event with its status for every listener."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import html as h
from ..payloads import MAX_SHOWN, parse, pretty
from .layout import Frame, heading, panel
from .listeners import address_of
from .parts import (
    NOTHING,
    Column,
    count,
    facts,
    field,
    json_block,
    moment,
    pager,
    query,
    state,
    suggestions,
    table,
    value,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sa_outbox.client.status import ListenerStatus
    from sa_outbox.operations.choices import Choices
    from sa_outbox.operations.events import EventDetail, EventPage, EventSummary

    from ..html import Child, Markup
    from ..mask import Masks
    from .parts import Tone

_COLUMNS = (
    Column("Position", numeric=True),
    Column("Type"),
    Column("Key"),
    Column("Tenant"),
    Column("Written (UTC)"),
)

TONES: dict[str, Tone] = {
    "pending": "info",
    "running": "info",
    "succeeded": "good",
    "failed": "warn",
    "dead": "bad",
    "cancelled": "quiet",
    "unknown": "quiet",
}


def events_page(frame: Frame, page: EventPage, known: Choices, asked: Mapping[str, str]) -> str:
    first = frame.url(query("/events", {**asked, "before": ""})) if asked.get("before") else None
    following = (
        None
        if page.next_before is None
        else frame.url(query("/events", {**asked, "before": page.next_before}))
    )
    return frame.page(
        "Events",
        heading("Events", under="Newest first. Only retained events are listed."),
        _search(frame, known, asked),
        panel(
            "Found",
            table(
                "Events",
                _COLUMNS,
                [_row(frame, each) for each in page.events],
                empty="No event here." if following is None else "None in this part of the log.",
            ),
            pager(first, following),
        ),
        at="/events",
    )


def _search(frame: Frame, known: Choices, asked: Mapping[str, str]) -> Markup:
    return h.form(
        h.div(
            suggestions(
                "type", "Type", known.event_types, asked.get("type"), placeholder="order.*"
            ),
            field("key", "Key", asked.get("key")),
            suggestions("tenant", "Tenant", known.tenants, asked.get("tenant")),
            field("id", "Event id or position", asked.get("id"), spellcheck="false"),
            field("since", "Since (UTC)", asked.get("since"), type="datetime-local", step=1),
            field("until", "Until (UTC)", asked.get("until"), type="datetime-local", step=1),
            class_="fields",
        ),
        h.div(
            h.button("Search", type="submit", class_="main"),
            h.a("Clear", href=frame.url("/events")),
            class_="actions",
        ),
        method="get",
        action=frame.url("/events"),
        class_="search panel",
        role="search",
        aria_label="Events",
    )


def _row(frame: Frame, each: EventSummary) -> list[Child]:
    return [
        str(each.id),
        h.a(value(each.event_type), href=event_address(frame, each.event_id)),
        value(each.key),
        value(each.tenant),
        moment(each.created_at),
    ]


def event_address(frame: Frame, event_id: object) -> str:
    return frame.url(f"/events/{event_id}")


def event_page(frame: Frame, event: EventDetail, masks: Masks, causation: Child = None) -> str:
    summary = event.summary
    return frame.page(
        event.event_type or "Event",
        h.nav(h.a("Events", href=frame.url("/events")), aria_label="Back", class_="crumbs"),
        heading(value(event.event_type or "Event"), under=h.code(str(event.event_id))),
        facts(
            ("Position", "no longer in the log" if event.position is None
             else count(event.position)),
            ("Written (UTC)", moment(event.created_at)),
            ("Key", value(summary.key if summary else None)),
            ("Tenant", value(summary.tenant if summary else None)),
            ("Not before (UTC)", moment(summary.run_at if summary else None)),
            ("Priority", str(summary.priority) if summary else NOTHING),
        ),
        _path(frame, event),
        causation,
        panel("Payload", stored_json(event.payload, masks, "Payload")),
        panel("Headers", stored_json(event.headers, masks, "Headers")),
        at="/events",
    )  # fmt: skip


def stored_json(text: str | None, masks: Masks, title: str) -> Markup:
    """Masked, formatted, and truncated to what fits on a page."""
    if text is None:
        return h.p("It is no longer in the log.", class_="empty")
    try:
        shown = pretty(masks.shown(parse(text)))
    except RecursionError:
        return h.p("It is nested too deeply to be shown.", class_="empty")
    if len(shown) <= MAX_SHOWN:
        return json_block(shown, title)
    note = h.p(f"The first {MAX_SHOWN:,} of {len(shown):,} characters.", class_="note")
    return h.div(note, json_block(shown[:MAX_SHOWN], title))


def _path(frame: Frame, event: EventDetail) -> Markup:
    steps = [_step(frame, name, each) for name, each in sorted(event.listeners.items())]
    letters = [
        h.a(f"Dead letter {each}", href=frame.url(f"/dead-letters/{each}"), class_="button")
        for each in event.dead_letters[:50]
    ]
    return panel(
        "Path",
        h.ol(steps, class_="path") if steps else h.p("No listener wants it.", class_="empty"),
        h.div(letters, class_="actions") if letters else None,
        note="its status for each listener",
    )


def _step(frame: Frame, name: str, each: ListenerStatus) -> Markup:
    said: list[Child] = []
    if each.attempts:
        said.append(h.span(f"{each.attempts} failed attempts", class_="note"))
    if each.due_at is not None:
        said.append(h.span("due ", moment(each.due_at), class_="note"))
    if each.result_ref is not None:
        said.append(h.span("result ", value(each.result_ref), class_="note"))
    if each.cancel_requested:
        said.append(h.span("asked to cancel: ", value(each.cancel_reason or "no reason given")))
    error = None
    if each.last_error is not None:
        error = h.details(
            h.summary(h.code(value(each.last_error_code))), h.pre(value(each.last_error))
        )
    return h.li(
        h.a(value(name), href=address_of(frame, name)),
        state(each.state, TONES[each.state]),
        *said,
        error,
        class_=TONES[each.state],
    )
