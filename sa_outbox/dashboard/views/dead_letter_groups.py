"""Dead letters by the error that they have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import html as h
from .dead_letters import search
from .layout import Frame, heading, panel
from .listeners import address_of
from .parts import Column, count, moment, query, table, value

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sa_outbox.operations.choices import Choices
    from sa_outbox.operations.dead_letters import DeadLetterGroup

    from ..html import Child


def dead_letter_groups_page(
    frame: Frame,
    groups: Sequence[DeadLetterGroup],
    limit: int,
    known: Choices,
    asked: Mapping[str, str],
) -> str:
    columns = [
        Column("Error", wide=True),
        Column("Dead letters", numeric=True),
        Column("First (UTC)"),
        Column("Last (UTC)"),
        Column("Listeners"),
        Column("Sample"),
    ]
    rows = [_row(frame, each, asked) for each in groups]
    return frame.page(
        "Dead letters by error",
        heading(
            "Dead letters by error",
            under="Of one error class, raised in one function of your program: probably one cause.",
        ),
        search(frame, known, asked, by_error=True),
        panel(
            f"{count(len(groups), limit)} errors",
            table("Dead letters by error", columns, rows, empty="No dead letter here."),
            note="the most frequent first",
        ),
        at="/dead-letters",
    )


def _row(frame: Frame, group: DeadLetterGroup, asked: Mapping[str, str]) -> list[Child]:
    message = ((group.error_message or "").splitlines() or [""])[0][:160]
    sample = frame.url(f"/dead-letters/{group.sample}")
    return [
        [h.code(value(group.error_class or group.error_code)), " ", value(message)],
        _number(frame, group, asked),
        moment(group.first_at),
        moment(group.last_at),
        _listeners(frame, group),
        [h.a(str(group.sample), href=sample), " ", value(group.event_type)],
    ]


def _number(frame: Frame, group: DeadLetterGroup, asked: Mapping[str, str]) -> Child:
    """Leads to them. Those without a fingerprint can't be asked for."""
    if group.error_fingerprint is None:
        return count(group.count)
    found = {**asked, "fingerprint": group.error_fingerprint, "group": "", "before": ""}
    return h.a(count(group.count), href=frame.url(query("/dead-letters", found)))


def _listeners(frame: Frame, group: DeadLetterGroup) -> list[Child]:
    links: list[Child] = []
    for each in group.listeners:
        links += [", " if links else None, h.a(value(each), href=address_of(frame, each))]
    more = group.listener_count - len(group.listeners)
    return [*links, f" and {more} more" if more > 0 else None]
