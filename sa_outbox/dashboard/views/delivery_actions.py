"""Retrying and cancelling deliveries: the confirmation, and what came of it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from sa_outbox.operations.delivery_change import CHANGED, OUTCOMES

from .. import html as h
from .dead_letter_actions import notice, why_field
from .deliveries import FILTERS, PATH
from .layout import Frame, heading, panel
from .parts import count, value

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sa_outbox.operations.deliveries import DeliveryId
    from sa_outbox.operations.delivery_change import Outcome

    from ..html import Child, Markup

ACTS: Final = ("retry", "cancel")
_VERBS: Final = {"retry": "Retry", "cancel": "Cancel"}
_MEANING: Final = {
    "retry": "Each is due now, whatever it waited for, and attempts are counted on. The order of a"
    " key is kept: what is behind another delivery comes after it.",
    "cancel": "Its listener never handles it. In a listener that keeps an order it is skipped, and"
    " the events behind it go on. A handler that runs is asked to stop.",
}
MAX_NAMED: Final = 40


def confirm_deliveries_page(
    frame: Frame, act: str, ids: Sequence[DeliveryId], asked: Mapping[str, str]
) -> str:
    """Either *ids* were chosen, or all that failed and match."""
    which = "1 delivery" if len(ids) == 1 else f"{count(len(ids))} deliveries"
    if not ids:
        which = "all that failed and match"
    title = f"{_VERBS[act]} {which}?"
    kept: list[Child] = [h.input_(type="hidden", name="id", value=str(each)) for each in ids]
    kept += [h.input_(type="hidden", name=name, value=asked.get(name, "")) for name in FILTERS]
    doing = "retry-all" if not ids else act
    return frame.page(
        title,
        heading(title, under=_MEANING[act]),
        panel(
            "Which",
            _which(ids, asked),
            frame.post(
                f"{PATH}/act",
                kept,
                why_field(),
                h.div(
                    h.button(
                        f"{_VERBS[act]} {which}" + (" now" if act == "retry" else ""),
                        name="act",
                        value=doing,
                        type="submit",
                        class_="danger" if act == "cancel" else "main",
                    ),
                    h.a("Back", href=frame.url(PATH)),
                    class_="actions",
                ),
                class_="confirm",
            ),
        ),
        at=PATH,
    )


def _which(ids: Sequence[DeliveryId], asked: Mapping[str, str]) -> Markup:
    if ids:
        named: list[Child] = [
            [f"{each.position} of ", value(each.listener), "  "] for each in ids[:MAX_NAMED]
        ]
        more = f" and {len(ids) - MAX_NAMED} more" if len(ids) > MAX_NAMED else ""
        return h.p(named, more)
    given = [(name, asked[name]) for name in FILTERS if asked.get(name)]
    if not given:
        return h.p("Every delivery that waits for a retry.")
    return h.p("Of these: ", [[f"{name} ", h.code(value(each)), "  "] for name, each in given])


def said_of(counts: Mapping[Outcome, int]) -> Markup | None:
    """A notice from the redirect's parameters: only our own words and numbers."""
    if not counts:
        return None
    words = [f"{count(number)} {OUTCOMES[each]}" for each, number in counts.items()]
    changed = sum(number for each, number in counts.items() if each in CHANGED)
    tone = "good" if changed == sum(counts.values()) else "warn"
    return notice("; ".join(words) + ".", tone)


def counts_of(outcomes: Iterable[str]) -> dict[str, int]:
    return dict(Counter(outcomes))
