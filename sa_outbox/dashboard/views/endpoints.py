"""Webhook endpoints: the list, and one. Never a secret."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from .. import html as h
from .dead_letter_actions import why_field
from .layout import Frame, heading, panel
from .listener_state import Standing, standing
from .listeners import MAX_COUNTED, address_of
from .parts import NOTHING, Column, count, facts, moment, query, span, state, table, value

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sa_outbox.operations.endpoint_view import EndpointView
    from sa_outbox.operations.overview import ListenerOverview, Overview

    from ..html import Child, Markup

PATH: Final = "/endpoints"
_COLUMNS: Final = (
    Column("Endpoint"),
    Column("State"),
    Column("Address"),
    Column("Gets"),
    Column("Waiting", numeric=True),
    Column("Lag", numeric=True),
    Column("Dead letters", numeric=True),
)
_RESTS: Final = (
    "Whether a process has paused sending because the endpoint is down is known in that process"
    " alone: its log says so, and its metric sa_outbox_relay_away_total."
)


def endpoint_address(frame: Frame, name: str) -> str:
    return frame.url(query("/endpoint", {"name": name}))


def endpoints_page(frame: Frame, found: Sequence[EndpointView], seen: Overview) -> str:
    listeners = {each.name: each for each in seen.listeners}
    return frame.page(
        "Endpoints",
        heading("Endpoints", under="Where webhooks go. Each is a listener of its own."),
        panel(
            "All",
            table(
                "Endpoints",
                _COLUMNS,
                [_row(frame, each, listeners.get(each.listener), seen) for each in found],
                empty="There is no endpoint: sa-outbox endpoints add.",
            ),
        ),
        at=PATH,
    )


def stands(each: EndpointView, of: ListenerOverview | None, seen: Overview) -> Standing:
    if each.disabled_at is not None:
        return Standing("disabled", "quiet")
    if of is None:
        return Standing("not served", "warn")
    return standing(of, seen)


def _row(
    frame: Frame, each: EndpointView, of: ListenerOverview | None, seen: Overview
) -> list[Child]:
    found = stands(each, of, seen)
    return [
        h.a(value(each.name), href=endpoint_address(frame, each.name)),
        state(found.word, found.tone),
        h.code(value(each.address)),
        value(" ".join(each.event_types)),
        count(of.lag_events) if of else NOTHING,
        span(of.lag_seconds) if of and of.lag_seconds else NOTHING,
        _dead(frame, each, of),
    ]


def _dead(frame: Frame, each: EndpointView, of: ListenerOverview | None) -> Child:
    if of is None or not of.dead_letters:
        return "0"
    return h.a(
        count(of.dead_letters, MAX_COUNTED),
        href=frame.url(query("/dead-letters", {"listener": each.listener})),
    )


def endpoint_page(frame: Frame, each: EndpointView, seen: Overview, said: Child) -> str:
    of = next((found for found in seen.listeners if found.name == each.listener), None)
    found = stands(each, of, seen)
    return frame.page(
        each.name,
        h.nav(h.a("Endpoints", href=frame.url(PATH)), aria_label="Back", class_="crumbs"),
        heading([value(each.name), " ", state(found.word, found.tone)], under=_address(each)),
        said,
        facts(*_facts(frame, each, of)),
        _last_error(frame, each, of),
        _actions(frame, each),
        panel("Settings", _settings(each.settings)),
        at=PATH,
    )


def _address(each: EndpointView) -> Markup:
    return h.code(value(each.address))


def _facts(
    frame: Frame, each: EndpointView, of: ListenerOverview | None
) -> list[tuple[str, Child]]:
    found: list[tuple[str, Child]] = [
        ("Listener", h.a(value(each.listener), href=address_of(frame, each.listener))
         if of else value(each.listener)),
        ("Gets", value(" ".join(each.event_types))),
        ("Only where", value(each.where)),
        ("Waiting", count(of.lag_events) if of else NOTHING),
        ("Lag", span(of.lag_seconds) if of and of.lag_seconds else NOTHING),
        ("Parked", count(of.deliveries.parked + of.deliveries.behind) if of else NOTHING),
        ("Dead letters", _dead(frame, each, of)),
        ("Added (UTC)", moment(each.created_at)),
        ("Changed (UTC)", moment(each.updated_at)),
    ]  # fmt: skip
    if each.disabled_at is not None:
        found += [
            ("Disabled (UTC)", moment(each.disabled_at)),
            ("Why", value(each.disabled_why)),
        ]
    return found


def _last_error(frame: Frame, each: EndpointView, of: ListenerOverview | None) -> Markup:
    waiting = frame.url(query("/deliveries", {"listener": each.listener}))
    error: Child = None
    if of is not None and of.last_error is not None:
        at, code, said = of.last_error
        error = h.p(h.code(value(code)), " ", value(said[:500]), " ", moment(at))
    return panel(
        "Delivering",
        error or h.p("No error is recorded for it.", class_="empty"),
        h.p(_RESTS, class_="note"),
        h.div(h.a("What waits for a retry", href=waiting, class_="button"), class_="actions"),
    )


def _settings(settings: Mapping[str, object]) -> Markup:
    rows: list[list[Child]] = [
        [name, h.code(value(json.dumps(each, ensure_ascii=False)))]
        for name, each in settings.items()
        if name not in ("on", "where")
    ]
    columns = (Column("Setting"), Column("Value", wide=True))
    return table("Settings", columns, rows, empty="All are as they are by default.")


def _actions(frame: Frame, each: EndpointView) -> Markup | None:
    if not frame.may_change:
        return None
    disabled = each.disabled_at is not None
    means = (
        "It continues where it left off, with everything that waits."
        if disabled
        else "Nothing is sent until it is enabled; its cursor stays, and holds retention back."
    )
    return panel(
        "Operate",
        h.div(
            frame.post(
                "/endpoint/enable" if disabled else "/endpoint/disable",
                h.input_(type="hidden", name="name", value=each.name),
                h.p(means, class_="note"),
                why_field(),
                h.button("Enable" if disabled else "Disable", type="submit", class_="main"),
            ),
            class_="acts",
        ),
    )
