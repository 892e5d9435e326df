"""The listeners: a table of all, and a page of one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import html as h
from .layout import Frame, heading, panel
from .listener_state import standing
from .parts import (
    NOTHING,
    Column,
    ago,
    count,
    counted,
    facts,
    moment,
    query,
    span,
    state,
    table,
    value,
)

if TYPE_CHECKING:
    from sa_outbox.operations.overview import Cursor, ListenerOverview, Overview

    from ..html import Child, Markup

MAX_COUNTED = 1000

_COLUMNS = (
    Column("Listener"),
    Column("State"),
    Column("Lag", numeric=True),
    Column("Waiting", numeric=True),
    Column("Parked", numeric=True),
    Column("Dead letters", numeric=True),
    Column("Last error", wide=True),
)


def address_of(frame: Frame, name: str) -> str:
    return frame.url(query("/listener", {"name": name}))


def listeners_table(frame: Frame, seen: Overview) -> Markup:
    return table(
        "Listeners",
        _COLUMNS,
        [_row(frame, each, seen) for each in seen.listeners],
        empty="No listener has registered yet: a consumer does that when it starts.",
    )


def _row(frame: Frame, each: ListenerOverview, seen: Overview) -> list[Child]:
    stands = standing(each, seen)
    dead = count(each.dead_letters, MAX_COUNTED)
    parked = each.deliveries.parked + each.deliveries.behind
    return [
        h.a(value(each.name), href=address_of(frame, each.name)),
        state(stands.word, stands.tone),
        span(each.lag_seconds) if each.lag_seconds else NOTHING,
        count(each.lag_events + each.ranges.events),
        count(parked, None if each.deliveries.complete else parked),
        h.a(dead, href=frame.url(query("/dead-letters", {"listener": each.name})))
        if each.dead_letters
        else "0",
        _last_error(each, seen),
    ]


def _last_error(each: ListenerOverview, seen: Overview) -> Child:
    if each.last_error is None:
        return h.span(NOTHING, class_="none")
    at, code, text = each.last_error
    first = (text.splitlines() or [""])[0][:120]
    return [h.code(value(code)), " ", value(first), " ", h.span(ago(at, seen.at), class_="note")]


def listeners_page(frame: Frame, seen: Overview) -> str:
    durations = h.a("Durations", href=frame.url("/durations"), class_="button")
    return frame.page(
        "Listeners", heading("Listeners", durations), panel("All", listeners_table(frame, seen)),
        at="/listeners",
    )  # fmt: skip


_PARTITION = (
    Column("Partition", numeric=True),
    Column("Position", numeric=True),
    Column("Waiting", numeric=True),
    Column("Lag", numeric=True),
    Column("Held by"),
    Column("Lease"),
    Column("Attempts", numeric=True),
    Column("Last error", wide=True),
)


def listener_page(
    frame: Frame, each: ListenerOverview, seen: Overview, notice: Child, actions: Child
) -> str:
    stands = standing(each, seen)
    return frame.page(
        each.name,
        h.nav(h.a("Listeners", href=frame.url("/listeners")), aria_label="Back", class_="crumbs"),
        heading([value(each.name), " ", state(stands.word, stands.tone)]),
        notice,
        facts(*_facts(frame, each, seen)),
        panel(
            "Partitions",
            table(
                "Partitions",
                _PARTITION,
                [_cursor(cursor, seen) for cursor in each.cursors],
                empty="It is no longer registered; only its dead letters remain.",
            ),
        ),
        actions,
        at="/listeners",
    )


def _facts(frame: Frame, each: ListenerOverview, seen: Overview) -> list[tuple[str, Child]]:
    waits = each.deliveries
    found: list[tuple[str, Child]] = [
        ("Lag", span(each.lag_seconds) if each.lag_seconds else "none"),
        ("Waiting events", count(each.lag_events)),
        ("Dead letters", h.a(
            count(each.dead_letters, MAX_COUNTED),
            href=frame.url(query("/dead-letters", {"listener": each.name})))),
        ("Parked", f"{waits.parked:,}, and {waits.behind:,} behind them"),
        ("Scheduled", count(waits.scheduled)),
        ("Next due", ago(waits.next_due_at, seen.at)),
    ]  # fmt: skip
    if each.ranges.ranges:
        held = f"{each.ranges.ranges:,} with {counted(each.ranges.events, 'event')}"
        found.append(("Ranges taken", held))
    if each.paused_at is not None:
        found.append(("Paused", moment(each.paused_at)))
    return found


def _cursor(cursor: Cursor, seen: Overview) -> list[Child]:
    lease: Child = NOTHING
    if cursor.lease_expired:
        lease = state("expired", "bad")
    elif cursor.lease_seconds is not None:
        lease = f"{span(cursor.lease_seconds)} left"
    error: Child = h.span(NOTHING, class_="none")
    if cursor.last_error_at is not None:
        error = h.details(
            h.summary(
                h.code(value(cursor.last_error_code)), " ", ago(cursor.last_error_at, seen.at)
            ),
            h.pre(value(cursor.last_error or "")),
        )
    return [
        str(cursor.partition),
        count(cursor.position),
        count(cursor.lag_events),
        span(cursor.lag_seconds) if cursor.lag_seconds else NOTHING,
        value(cursor.owner),
        lease,
        count(cursor.retry_count),
        error,
    ]
