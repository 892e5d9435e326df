"""Deliveries: what runs, what waits and for what, and what an operator can do about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sa_outbox.operations.deliveries import STATES

from .. import html as h
from .events import event_address
from .layout import Frame, heading, panel
from .listeners import address_of
from .parts import (
    NOTHING,
    Column,
    choices,
    count,
    field,
    moment,
    named,
    owner,
    pager,
    query,
    span,
    state,
    suggestions,
    table,
    value,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sa_outbox.operations.claims import ClaimedRange
    from sa_outbox.operations.deliveries import (
        Delivery,
        DeliveryChoices,
        DeliveryPage,
        HeldDelivery,
        Work,
    )

    from ..html import Child, Markup
    from .parts import Tone

PATH: Final = "/deliveries"
FILTERS: Final = ("listener", "state", "type", "tenant", "key")
MAX_WORK: Final = 100
"""Rows of what runs."""

_TONES: Final[dict[str, Tone]] = {
    "running": "good",
    "parked": "warn",
    "scheduled": "info",
    "behind": "warn",
    "cancelled": "quiet",
}
_COLUMNS: Final = (
    Column("Position", numeric=True),
    Column("Listener"),
    Column("Event"),
    Column("Key"),
    Column("State"),
    Column("Due (UTC)"),
    Column("Failed", numeric=True),
    Column("Error", wide=True),
)
_WORK: Final = (
    Column("Listener"),
    Column("Part"),
    Column("Position", numeric=True),
    Column("Events", numeric=True),
    Column("Held by"),
    Column("Lease"),
)


@dataclass(frozen=True, slots=True)
class Seen:
    """What the page shows."""

    page: DeliveryPage
    held: Sequence[HeldDelivery]
    work: Sequence[Work]
    ranges: Sequence[ClaimedRange]
    choices: DeliveryChoices


def deliveries_page(frame: Frame, seen: Seen, asked: Mapping[str, str], notice: Child) -> str:
    page = seen.page
    first = frame.url(query(PATH, {**asked, "after": ""})) if asked.get("after") else None
    following = (
        None
        if page.next_after is None
        else frame.url(query(PATH, {**asked, "after": str(page.next_after)}))
    )
    return frame.page(
        "Deliveries",
        heading(
            "Deliveries",
            under="One event for one listener. It has a row once it waits for something.",
        ),
        notice,
        _search(frame, seen.choices, asked),
        panel(
            "Waiting",
            _list(frame, page.deliveries, asked, is_more=following is not None),
            pager(first, following),
            note="by listener and position",
        ),
        _held(frame, seen.held) if seen.held else None,
        _work(frame, seen),
        at=PATH,
    )


def _search(frame: Frame, known: DeliveryChoices, asked: Mapping[str, str]) -> Markup:
    return h.form(
        h.div(
            choices(
                "listener", "Listener", named(known.listeners, asked.get("listener")),
                asked.get("listener"),
            ),
            choices("state", "State", named(STATES, None), asked.get("state")),
            suggestions("type", "Event type", known.event_types, asked.get("type")),
            suggestions("tenant", "Tenant", known.tenants, asked.get("tenant")),
            field("key", "Key", asked.get("key")),
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
        aria_label="Deliveries",
    )  # fmt: skip


def _list(
    frame: Frame, found: Sequence[Delivery], asked: Mapping[str, str], *, is_more: bool
) -> Markup:
    choosing = frame.may_change and any(each.state != "cancelled" for each in found)
    columns = [Column(""), *_COLUMNS] if choosing else list(_COLUMNS)
    rows = [[*([_choice(each)] if choosing else []), *_row(frame, each)] for each in found]
    empty = "None in this part; there is more." if is_more else "No delivery waits here."
    listed = table("Deliveries", columns, rows, empty=empty)
    if not choosing:
        return listed
    kept = [h.input_(type="hidden", name=name, value=asked.get(name, "")) for name in FILTERS]
    return frame.post(f"{PATH}/confirm", kept, _bulk(), listed)


def _bulk() -> Markup:
    return h.div(
        h.button("Retry chosen now", name="act", value="retry", type="submit"),
        h.button("Cancel chosen", name="act", value="cancel", type="submit"),
        h.button(
            "Retry all that failed and match",
            name="act",
            value="retry-all",
            type="submit",
            class_="quiet",
        ),
        class_="actions bulk",
    )


def _choice(each: Delivery) -> Child:
    if each.state == "cancelled":
        return None
    name = f"Delivery {each.position} of {each.listener}"
    return h.input_(type="checkbox", name="id", value=str(each.id), aria_label=name)


def _row(frame: Frame, each: Delivery) -> list[Child]:
    said: list[Child] = [state(each.state, _TONES[each.state])]
    if each.cancel_requested and each.state != "cancelled":
        said.append(h.span(" asked to stop", class_="note"))
    if each.dead_letter is not None:
        said.append(
            h.a("replay", href=frame.url(f"/dead-letters/{each.dead_letter}"), class_="beside")
        )
    return [
        str(each.position),
        h.a(value(each.listener), href=address_of(frame, each.listener)),
        h.a(value(each.event_type), href=event_address(frame, each.event_id)),
        value(each.key),
        said,
        owner(each.owner) if each.state == "running" else moment(each.due_at),
        count(each.attempts),
        error(each.last_error_code, each.last_error, each.cancel_reason),
    ]


def error(code: str | None, message: str | None, otherwise: str | None = None) -> Child:
    if code is None and message is None:
        return value(otherwise)
    first = ((message or "").splitlines() or [""])[0][:160]
    return [h.code(value(code)), " ", value(first)]


def _held(frame: Frame, found: Sequence[HeldDelivery]) -> Markup:
    columns = [Column("Listener"), Column("Position", numeric=True), Column("Event"),
               Column("Next attempt (UTC)"), Column("Failed", numeric=True),
               Column("Error", wide=True)]  # fmt: skip
    rows: list[list[Child]] = [
        [
            h.a(value(each.listener), href=address_of(frame, each.listener)),
            str(each.position),
            h.a(value(each.event_type), href=event_address(frame, each.event_id))
            if each.event_id
            else value(None),
            moment(each.due_at),
            count(each.attempts),
            error(each.last_error_code, each.last_error),
        ]
        for each in found
    ]
    if frame.may_change:
        columns.append(Column("Retry"))
        for row, each in zip(rows, found, strict=True):
            row.append(_retry_held(frame, each))
    return panel(
        "Held",
        table("Held", columns, rows, empty=""),
        note="everything of this listener waits for it: order total",
    )


def _retry_held(frame: Frame, each: HeldDelivery) -> Markup:
    return frame.post(
        f"{PATH}/act",
        h.input_(type="hidden", name="id", value=str(each.id)),
        h.button(
            "Retry now",
            name="act",
            value="retry",
            type="submit",
            aria_label=f"Retry {each.position} of {each.listener} now",
        ),
    )


def _work(frame: Frame, seen: Seen) -> Markup:
    rows: list[list[Child]] = [
        [
            h.a(value(each.queue), href=address_of(frame, each.queue)),
            f"range {each.number}",
            str(each.first_id),
            count(each.events),
            owner(each.owner) if each.owner else state("nobody", "warn"),
            f"{span(each.lease_seconds)} left" if each.owner else NOTHING,
        ]
        for each in seen.ranges
    ]
    rows += [
        [
            h.a(value(each.listener), href=address_of(frame, each.listener)),
            f"partition {each.number}",
            str(each.position),
            NOTHING,
            owner(each.owner),
            f"{span(each.lease_seconds)} left",
        ]
        for each in seen.work
    ]
    more = f", the first {MAX_WORK} of {len(rows)}" if len(rows) > MAX_WORK else ""
    return panel(
        "Running",
        table(
            "Running", _WORK, rows[:MAX_WORK], empty="No process works on anything: none is alive."
        ),
        note="who has claimed what: the start of a handler is not written" + more,
    )
