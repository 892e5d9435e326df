"""Recurring events: the list, and the confirmation before one is run now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .. import html as h
from .dead_letter_actions import notice, why_field
from .events import event_address
from .layout import Frame, heading, panel
from .parts import Column, moment, query, state, table, value

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from sa_outbox.operations.crons import CronOverview

    from ..html import Child, Markup

PATH: Final = "/crons"
_COLUMNS: Final = (
    Column("Cron"),
    Column("State"),
    Column("Expression"),
    Column("Next ticks (UTC)"),
    Column("Last tick (UTC)"),
    Column("Event"),
)
_MISSED: Final = {
    "one": "one event for all missed ticks",
    "skip": "missed ticks are skipped",
    "all": "an event for each missed tick",
}


def crons_page(frame: Frame, crons: Sequence[CronOverview], said: Child) -> str:
    columns = list(_COLUMNS)
    rows = [_row(frame, each) for each in crons]
    if frame.may_change and any(_can_run(each) for each in crons):
        columns.append(Column("Run"))
        for row, each in zip(rows, crons, strict=True):
            row.append(_run(frame, each) if _can_run(each) else None)
    return frame.page(
        "Crons",
        heading("Crons", under="Each tick adds one event, however many consumers run."),
        said,
        panel("All", table("Crons", columns, rows, empty="There is no cron.")),
        at=PATH,
    )


def _can_run(each: CronOverview) -> bool:
    return each.event_type is not None and each.changed_at is not None


def _row(frame: Frame, each: CronOverview) -> list[Child]:
    return [
        value(each.name),
        _state(each),
        _expression(each),
        [h.div(moment(tick)) for tick in each.next_ticks] or value(None),
        moment(each.last_tick),
        value(None)
        if each.event_type is None
        else h.a(
            value(each.event_type), href=frame.url(query("/events", {"type": each.event_type}))
        ),
    ]


def _state(each: CronOverview) -> Markup:
    if each.changed_at is None:
        return state("not started", "warn")
    if each.expression is None:
        return state("not declared here", "quiet")
    if each.is_late:
        return state("late", "bad")
    return state("fine", "good")


def _expression(each: CronOverview) -> Child:
    if each.expression is None:
        return value(None)
    return [
        h.code(value(each.expression)),
        h.div(value(each.time_zone), ", ", _MISSED.get(each.missed or "", ""), class_="note"),
    ]


def _run(frame: Frame, each: CronOverview) -> Markup:
    return frame.post(
        f"{PATH}/confirm",
        h.input_(type="hidden", name="name", value=each.name),
        h.button("Run now …", type="submit", aria_label=f"Run {each.name} now …"),
    )


def confirm_cron_page(frame: Frame, each: CronOverview) -> str:
    return frame.page(
        f"Run {each.name} now?",
        heading(
            ["Run ", value(each.name), " now?"],
            under=["Adds one event ", value(each.event_type), ". The schedule stays as it is."],
        ),
        panel(
            "Now",
            frame.post(
                f"{PATH}/run",
                h.input_(type="hidden", name="name", value=each.name),
                h.input_(type="hidden", name="seen", value=str(each.changed_at)),
                why_field(),
                h.div(
                    h.button("Run now", type="submit", class_="main"),
                    h.a("Back", href=frame.url(PATH)),
                    class_="actions",
                ),
                class_="confirm",
            ),
        ),
        at=PATH,
    )


def ran(frame: Frame, event_id: UUID) -> Markup:
    link = h.a("its event", href=event_address(frame, event_id))
    return h.p("It was run: ", link, " is in the log.", class_="notice good", role="status")


def not_ran() -> Markup:
    return notice(
        "Nothing was added: it has ticked or was run since you looked. Is that enough?", "warn"
    )
