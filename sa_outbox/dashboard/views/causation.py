"""One event's causation: what led to it above, what it led to below, as a tree."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import html as h
from .events import TONES, event_address
from .layout import panel
from .parts import moment, state, value

if TYPE_CHECKING:
    from uuid import UUID

    from sa_outbox.operations.causation import Causation, CausedEvent

    from ..html import Child, Markup
    from .layout import Frame


def causation_panel(frame: Frame, found: Causation) -> Markup | None:
    """None: nothing caused it, and it caused nothing."""
    if not found.causes and not found.event.caused and found.lost_cause is None:
        return None
    drawn = _node(frame, found.event, here=found.event.event_id, inside=None)
    for cause in reversed(found.causes):
        drawn = _node(frame, cause, here=found.event.event_id, inside=drawn)
    note = "its cause above it, what it caused below; the worst state of each for any listener"
    lost = None
    if found.lost_cause is not None:
        lost = h.p("Caused by ", h.code(str(found.lost_cause)), ", which is no longer in the log.",
                   class_="note")  # fmt: skip
    cut = h.p("There is more than is shown.", class_="note") if found.is_cut else None
    return panel("Causation", lost, h.ul(drawn, class_="tree"), cut, note=note)


def _node(frame: Frame, each: CausedEvent, *, here: UUID, inside: Markup | None) -> Markup:
    """*inside* instead of what it caused: of a cause only the way to the event is shown."""
    name: Child = h.a(value(each.event_type), href=event_address(frame, each.event_id))
    if each.event_id == here:
        name = h.strong(value(each.event_type), aria_current="true")
    below = [_node(frame, one, here=here, inside=None) for one in each.caused]
    return h.li(
        h.div(
            name,
            state(each.state, TONES.get(each.state, "quiet")),
            h.span(f"at {each.position}", class_="note"),
            h.span(moment(each.created_at), class_="note"),
            class_="node",
        ),
        h.ul(inside or below) if inside or below else None,
    )
