"""Resolving dead letters: the actions on one, the confirmation for many, the edit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .. import html as h
from .dead_letters import FILTERS
from .layout import Frame, heading, panel
from .parts import counted, value

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sa_outbox.operations.dead_letters import DeadLetter

    from ..comparison import Changes
    from ..html import Child, Markup

LONGEST_WHY: Final = 300
VERBS: Final = {"replay": "Replay", "discard": "Discard", "fixed": "Mark as fixed"}
DONE: Final = {"replay": "replayed", "discard": "discarded", "fixed": "marked as fixed"}


def why_field(title: str = "Why (recorded)") -> Markup:
    return h.label(title, h.input_(name="why", maxlength=LONGEST_WHY, autocomplete="off"))


def letter_actions(frame: Frame, letter: DeadLetter) -> Markup | None:
    """For an operator, while it is unresolved."""
    if not frame.may_change or letter.resolution is not None:
        return None
    at = f"/dead-letters/{letter.id}"
    one = h.input_(type="hidden", name="id", value=letter.id)
    return panel(
        "Resolve",
        h.div(
            frame.post(
                "/dead-letters/act",
                one,
                h.p("Deliver it again, to this listener only.", class_="note"),
                why_field(),
                h.div(
                    h.button("Replay", name="act", value="replay", type="submit", class_="main"),
                    h.a("Edit and replay", href=frame.url(f"{at}/edit"), class_="button"),
                    class_="actions",
                ),
            ),
            frame.post(
                "/dead-letters/confirm",
                one,
                h.p("Discard it. It stays here, with who and why.", class_="note"),
                h.div(
                    h.button("Discard …", name="act", value="discard", type="submit"),
                    h.button("Mark as fixed …", name="act", value="fixed", type="submit"),
                    class_="actions",
                ),
            ),
            class_="acts",
        ),
    )


def confirm_page(
    frame: Frame, act: str, matching: int, ids: Sequence[int], asked: Mapping[str, str], newest: int
) -> str:
    """Confirmation with the count. Either *ids* were selected, or all that match."""
    letters = counted(matching, "dead letter")
    kept: list[Child] = [h.input_(type="hidden", name="id", value=each) for each in ids]
    if not ids:
        given = {**{name: asked.get(name, "") for name in FILTERS}, "newest": str(newest)}
        kept = [h.input_(type="hidden", name=name, value=each) for name, each in given.items()]
    of = "/dead-letters" if len(ids) != 1 else f"/dead-letters/{ids[0]}"
    return frame.page(
        f"{VERBS[act]} {letters}?",
        heading(f"{VERBS[act]} {letters}?", under=_meaning(act)),
        panel(
            "Which",
            _which(ids, asked),
            frame.post(
                "/dead-letters/act",
                kept,
                why_field(),
                h.div(
                    h.button(
                        f"{VERBS[act]} {letters}",
                        name="act",
                        value=act,
                        type="submit",
                        class_="danger" if act == "discard" else "main",
                    ),
                    h.a("Cancel", href=frame.url(of)),
                    class_="actions",
                ),
                class_="confirm",
            ),
        ),
        at="/dead-letters",
    )


def _meaning(act: str) -> str:
    if act == "replay":
        return "Each is delivered again, to the listener that gave it up, in the order of the log."
    return "They are not delivered. They stay here, with your name and your reason."


def _which(ids: Sequence[int], asked: Mapping[str, str]) -> Markup:
    if ids:
        shown = ", ".join(str(each) for each in ids[:40])
        more = f" and {len(ids) - 40} more" if len(ids) > 40 else ""
        return h.p(f"Number {shown}{more}.")
    given = [(name, asked[name]) for name in FILTERS if asked.get(name)]
    if not given:
        return h.p("Every open dead letter of now.")
    return h.p(
        "All of now that match: ", [[f"{name} ", h.code(value(each)), "  "] for name, each in given]
    )


def notice(text: str, tone: str) -> Markup:
    return h.p(text, class_=f"notice {tone}", role="status")


def edit_page(
    frame: Frame, letter: DeadLetter, text: str, *, masked: int, wrong: str | None = None
) -> str:
    hint = "JSON. "
    if masked:
        hint += "Each «masked n» stands for a value that is not shown; leave it in its field."
    return frame.page(
        f"Edit dead letter {letter.id}",
        heading(
            ["Edit ", value(letter.event_type)],
            under=f"Dead letter {letter.id}. The log keeps the event as it was.",
        ),
        notice(wrong, "bad") if wrong else None,
        frame.post(
            f"/dead-letters/{letter.id}/compare",
            h.input_(type="hidden", name="edits", value=letter.edits),
            h.label(
                "Payload",
                # A parser ignores the first line break after the tag.
                h.textarea("\n", text, name="payload", rows=22, spellcheck="false",
                           aria_describedby="hint", required=True),
            ),
            h.p(hint, class_="hint", id="hint"),
            h.div(
                h.button("Compare", type="submit", class_="main"),
                h.a("Cancel", href=frame.url(f"/dead-letters/{letter.id}")),
                class_="actions",
            ),
            class_="panel",
        ),
        at="/dead-letters",
    )  # fmt: skip


def compare_page(
    frame: Frame, letter: DeadLetter, text: str, changes: Changes, shown: Changes
) -> str:
    """The diff of original and edit, before it is saved. *shown* is what fits on a page."""
    marks = {"same": h.span, "removed": h.del_, "added": h.ins, "left out": h.span}
    taken = sum(kind == "removed" for kind, _ in changes)
    added = sum(kind == "added" for kind, _ in changes)
    kept = (
        h.input_(type="hidden", name="edits", value=letter.edits),
        h.input_(type="hidden", name="payload", value=text),
    )
    back = h.button("Edit again", type="submit", formaction=frame.url(
        f"/dead-letters/{letter.id}/edit-again"), class_="quiet")  # fmt: skip
    return frame.page(
        f"Compare dead letter {letter.id}",
        heading(
            ["Compare ", value(letter.event_type)],
            under=f"Lines removed: {taken}, added: {added}." if taken or added else "No change.",
        ),
        panel(
            "Original and edit",
            h.pre(
                [marks[kind](line or " ") for kind, line in shown],
                class_="json compare",
                tabindex="0",
                role="region",
                aria_label="Original and edit",
            ),
            frame.post(
                f"/dead-letters/{letter.id}/edit",
                kept,
                why_field(),
                h.div(
                    h.button(
                        "Save and replay", name="then", value="replay", type="submit", class_="main"
                    ),
                    h.button("Save only", name="then", value="stay", type="submit"),
                    back,
                    h.a("Cancel", href=frame.url(f"/dead-letters/{letter.id}")),
                    class_="actions",
                ),
                class_="confirm",
            ),
        ),
        at="/dead-letters",
    )
