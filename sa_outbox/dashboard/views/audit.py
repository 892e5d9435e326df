"""The audit: what was done, by whom and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .. import html as h
from .events import event_address
from .layout import Frame, heading, panel
from .listeners import address_of
from .parts import (
    Column,
    choices,
    field,
    moment,
    named,
    pager,
    query,
    suggestions,
    table,
    value,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sa_outbox.operations.audit import AuditPage, AuditRecord
    from sa_outbox.operations.choices import Choices

    from ..html import Child, Markup

PATH: Final = "/audit"
_COLUMNS: Final = (
    Column("When (UTC)"),
    Column("Action"),
    Column("Event"),
    Column("Listener"),
    Column("Attempt", numeric=True),
    Column("Tenant"),
    Column("Actor"),
    Column("Detail", wide=True),
)


def audit_page(frame: Frame, page: AuditPage, known: Choices, asked: Mapping[str, str]) -> str:
    first = frame.url(query(PATH, {**asked, "before": ""})) if asked.get("before") else None
    following = (
        None
        if page.next_before is None
        else frame.url(query(PATH, {**asked, "before": page.next_before}))
    )
    empty = "No record here." if following is None else "None in this part of the audit."
    return frame.page(
        "Audit",
        heading(
            "Audit",
            under="What operators did, always; what became of events, if the outbox has an audit.",
        ),
        _search(frame, known, asked),
        panel(
            "Records",
            table("Audit", _COLUMNS, [_row(frame, each) for each in page.records], empty=empty),
            pager(first, following),
            note="newest first",
        ),
        at=PATH,
    )


def _search(frame: Frame, known: Choices, asked: Mapping[str, str]) -> Markup:
    return h.form(
        h.div(
            choices("action", "Action", named(known.actions, asked.get("action")),
                    asked.get("action")),
            choices("listener", "Listener", named(known.listeners, asked.get("listener")),
                    asked.get("listener")),
            suggestions("actor", "Actor", known.actors, asked.get("actor")),
            field("event", "Event id", asked.get("event"), spellcheck="false"),
            class_="fields",
        ),
        h.div(
            h.button("Search", type="submit", class_="main"),
            h.a("Clear", href=frame.url(PATH)),
            class_="actions",
        ),
        method="get",
        action=frame.url(PATH),
        class_="search panel",
        role="search",
        aria_label="Audit",
    )  # fmt: skip


def _row(frame: Frame, each: AuditRecord) -> list[Child]:
    event: Child = value(each.event_type)
    if each.event_id is not None:
        event = h.a(
            value(each.event_type or str(each.event_id)), href=event_address(frame, each.event_id)
        )
    return [
        moment(each.recorded_at),
        h.code(value(each.action)),
        event,
        value(None)
        if each.listener is None
        else h.a(value(each.listener), href=address_of(frame, each.listener)),
        value(None if each.attempt is None else str(each.attempt)),
        _noted(each.tenant, each.project_id),
        _noted(each.actor_id, each.actor_type),
        _detail(each),
    ]


def _noted(text: str | None, note: str | None) -> Child:
    """*text* with a *note* beside it, where there is one."""
    if text is None or note is None:
        return value(text if note is None else note)
    return [value(text), " ", h.span(value(note), class_="note")]


def _detail(each: AuditRecord) -> Child:
    ids = {"request_id": each.request_id, "correlation_id": each.correlation_id}
    detail = each.detail | {name: text for name, text in ids.items() if text is not None}
    if not detail:
        return value(None)
    return [[h.span(f"{name} ", class_="note"), value(str(text)), "  "]
            for name, text in detail.items()]  # fmt: skip
