"""The actions on a listener: pause and resume at once, move after a confirmation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .. import html as h
from .dead_letter_actions import why_field
from .layout import Frame, heading, panel
from .listeners import address_of
from .parts import choices, field, value

if TYPE_CHECKING:
    from sa_outbox.operations.overview import ListenerOverview

    from ..html import Markup

MOVES: Final = {
    "rewind": "Rewind",
    "skip": "Skip",
    "skip-event": "Skip the event",
}


def listener_actions(frame: Frame, each: ListenerOverview) -> Markup | None:
    """For an operator, on a registered listener."""
    if not frame.may_change or not each.cursors:
        return None
    name = h.input_(type="hidden", name="name", value=each.name)
    paused = each.paused_at is not None
    stuck = any(cursor.retry_position is not None for cursor in each.cursors)
    which = [("rewind", "Rewind: handle again from there on")]
    which.append(("skip", "Skip everything up to there"))
    which.append(("skip-event", "Skip one event: the one at this position"))
    return panel(
        "Operate",
        h.div(
            frame.post(
                "/listener/resume" if paused else "/listener/pause",
                name,
                h.p(
                    "No consumer works on it until it is resumed; nothing is lost."
                    if not paused
                    else "It continues where it stopped.",
                    class_="note",
                ),
                why_field(),
                h.button("Resume" if paused else "Pause", type="submit", class_="main"),
            ),
            frame.post(
                "/listener/confirm",
                name,
                h.p("Move it while its consumers run. You are asked once more.", class_="note"),
                choices("act", "What", which, "skip-event" if stuck else "rewind"),
                field(
                    "to",
                    "Position, time in UTC, beginning or now",
                    None,
                    placeholder="120481, or 2026-01-31T08:00",
                    autocomplete="off",
                    required=True,
                ),
                h.button("Move …", type="submit"),
            ),
            class_="acts",
        ),
    )


def confirm_move_page(frame: Frame, name: str, act: str, to: str, waiting: str) -> str:
    where = h.code(value(to))
    said: dict[str, list[str | Markup]] = {
        "rewind": [
            "Every event from ",
            where,
            " on is handled again, in order. Handlers see it twice.",
        ],
        "skip": ["Every event up to ", where, " that it has not claimed is skipped forever."],
        "skip-event": ["The event at ", where, " is skipped forever."],
    }
    return frame.page(
        f"{MOVES[act]} {name}?",
        heading([f"{MOVES[act]} ", value(name), "?"], under=said[act]),
        panel(
            "Now",
            h.p(waiting),
            frame.post(
                "/listener/move",
                h.input_(type="hidden", name="name", value=name),
                h.input_(type="hidden", name="act", value=act),
                h.input_(type="hidden", name="to", value=to),
                why_field(),
                h.div(
                    h.button(MOVES[act], type="submit", class_="danger"),
                    h.a("Cancel", href=address_of(frame, name)),
                    class_="actions",
                ),
                class_="confirm",
            ),
        ),
        at="/listeners",
    )
