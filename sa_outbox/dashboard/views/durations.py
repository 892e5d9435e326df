"""How long handlers take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .. import html as h
from .layout import Frame, heading, panel
from .listeners import address_of
from .parts import Column, count, moment, span, table, value

if TYPE_CHECKING:
    from sa_outbox.operations.durations import Duration, Durations

    from ..html import Child, Markup

PATH: Final = "/durations"
_COLUMNS: Final = (
    Column("Listener"),
    Column("Event type"),
    Column("Attempts", numeric=True),
    Column("Failed", numeric=True),
    Column("Half within", numeric=True),
    Column("95 % within", numeric=True),
    Column("99 % within", numeric=True),
    Column("Longest", numeric=True),
)
_NONE: Final = (
    'No attempt is recorded with its start and its end: that needs Outbox(audit="all"). The'
    " consumers' own metrics have it too: sa_outbox_handler_seconds, by listener and event type."
)


def durations_page(frame: Frame, seen: Durations) -> str:
    return frame.page(
        "Durations",
        h.nav(h.a("Listeners", href=frame.url("/listeners")), aria_label="Back", class_="crumbs"),
        heading("Durations", under="How long handlers took, from the audit."),
        panel(
            "By listener and event type",
            table("Durations", _COLUMNS, [_row(frame, each) for each in seen.found], empty=_NONE),
            note=_source(seen),
        ),
        at="/listeners",
    )


def _source(seen: Durations) -> list[str | Markup]:
    found: list[str | Markup] = [f"from the newest {count(seen.records)} records"]
    return [*found, ", since ", moment(seen.since)] if seen.since is not None else found


def _row(frame: Frame, each: Duration) -> list[Child]:
    return [
        h.a(value(each.listener), href=address_of(frame, each.listener)),
        value(each.event_type),
        count(each.attempts),
        count(each.failed),
        *(_took(seconds) for seconds in (each.p50, each.p95, each.p99, each.longest)),
    ]


def _took(seconds: float) -> str:
    return "under 1 ms" if seconds < 0.001 else span(seconds)
