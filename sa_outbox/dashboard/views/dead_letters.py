"""Dead letters: the list with its filters, and one with what is known of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, get_args

from sa_outbox.policy.delivery import Reason

from .. import html as h
from .attempt_errors import attempt_errors
from .events import event_address, stored_json
from .layout import Frame, heading, panel
from .listeners import address_of
from .parts import (
    Column,
    choices,
    count,
    facts,
    field,
    moment,
    named,
    pager,
    query,
    state,
    suggestions,
    table,
    value,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sa_outbox.operations.choices import Choices
    from sa_outbox.operations.dead_letters import DeadLetter, DeadLetterDetail, DeadLetterPage

    from ..html import Child, Markup
    from ..mask import Masks
    from .parts import Tone

FILTERS: Final = (
    "listener",
    "type",
    "key",
    "tenant",
    "reason",
    "code",
    "fingerprint",
    "since",
    "until",
    "resolution",
)
REASONS: Final = get_args(Reason)
RESOLUTIONS: Final = ("open", "replayed", "discarded", "fixed", "any")

_TONES: Final[dict[str | None, Tone]] = {
    None: "bad",
    "replayed": "good",
    "fixed": "good",
    "discarded": "quiet",
}


def resolution_of(letter: DeadLetter) -> Markup:
    return state(letter.resolution or "open", _TONES.get(letter.resolution, "quiet"))


def dead_letters_page(
    frame: Frame,
    page: DeadLetterPage,
    matching: int,
    known: Choices,
    asked: Mapping[str, str],
    notice: Child,
) -> str:
    at = "/dead-letters"
    first = frame.url(query(at, {**asked, "before": ""})) if asked.get("before") else None
    following = (
        None
        if page.next_before is None
        else frame.url(query(at, {**asked, "before": page.next_before}))
    )
    return frame.page(
        "Dead letters",
        heading(
            "Dead letters", under="Deliveries that were given up, each with its copy of the event."
        ),
        notice,
        search(frame, known, asked, by_error=False),
        panel(
            f"{count(matching)} found",
            _list(frame, page.letters, matching, asked),
            pager(first, following),
        ),
        at=at,
    )


def search(frame: Frame, known: Choices, asked: Mapping[str, str], *, by_error: bool) -> Markup:
    """The form, which leads back to the same kind of list; and a link to the other kind."""
    other = {**asked, "group": "" if by_error else "error", "before": ""}

    def titled(names: Sequence[str], blank: str | None = None) -> list[tuple[str, str]]:
        listed = [(each, each) for each in names]
        return listed if blank is None else [("", blank), *listed]

    return h.form(
        h.div(
            choices(
                "listener", "Listener", named(known.listeners, asked.get("listener")),
                asked.get("listener"),
            ),
            suggestions(
                "type", "Event type", known.event_types, asked.get("type"), placeholder="order.*"
            ),
            field("key", "Key", asked.get("key")),
            suggestions("tenant", "Tenant", known.tenants, asked.get("tenant")),
            field("code", "Error code", asked.get("code")),
            field("fingerprint", "Error fingerprint", asked.get("fingerprint")),
            choices("reason", "Given up because", titled(REASONS, "any"), asked.get("reason")),
            choices("resolution", "Resolution", titled(RESOLUTIONS), asked.get("resolution")),
            field("since", "Since (UTC)", asked.get("since"), type="datetime-local", step=1),
            field("until", "Until (UTC)", asked.get("until"), type="datetime-local", step=1),
            class_="fields",
        ),
        h.div(
            h.input_(type="hidden", name="group", value="error") if by_error else None,
            h.button("Search", type="submit", class_="main"),
            h.a("Clear", href=frame.url("/dead-letters")),
            h.a(
                "One by one" if by_error else "Group by error",
                href=frame.url(query("/dead-letters", other)),
            ),
            class_="actions",
        ),
        method="get",
        action=frame.url("/dead-letters"),
        class_="search panel",
        role="search",
        aria_label="Dead letters",
    )  # fmt: skip


def _list(
    frame: Frame, letters: Sequence[DeadLetter], matching: int, asked: Mapping[str, str]
) -> Markup:
    choosing = frame.may_change and any(each.resolution is None for each in letters)
    columns = [Column("")] if choosing else []
    columns += [
        Column("Id", numeric=True),
        Column("Listener"),
        Column("Event"),
        Column("Key"),
        Column("Error", wide=True),
        Column("Given up (UTC)"),
        Column("Resolution"),
    ]
    rows = [[*([_choice(each)] if choosing else []), *_row(frame, each)] for each in letters]
    listed = table("Dead letters", columns, rows, empty="No dead letter here.")
    if not choosing:
        return listed
    kept = [h.input_(type="hidden", name=name, value=asked.get(name, "")) for name in FILTERS]
    return frame.post("/dead-letters/confirm", kept, _bulk(matching), listed)


def _bulk(matching: int) -> Markup:
    every = f"all {count(matching)}"
    return h.div(
        h.button("Replay chosen", name="act", value="replay", type="submit"),
        h.button("Discard chosen", name="act", value="discard", type="submit"),
        h.button(f"Replay {every}", name="act", value="replay-all", type="submit", class_="quiet"),
        h.button(
            f"Discard {every}", name="act", value="discard-all", type="submit", class_="quiet"
        ),
        class_="actions bulk",
    )


def _choice(letter: DeadLetter) -> Child:
    if letter.resolution is not None:
        return None
    return h.input_(
        type="checkbox", name="id", value=letter.id, aria_label=f"Dead letter {letter.id}"
    )


def _row(frame: Frame, letter: DeadLetter) -> list[Child]:
    message = ((letter.error_message or "").splitlines() or [""])[0][:160]
    return [
        h.a(str(letter.id), href=frame.url(f"/dead-letters/{letter.id}")),
        h.a(value(letter.listener), href=address_of(frame, letter.listener)),
        h.a(value(letter.event_type), href=frame.url(f"/dead-letters/{letter.id}")),
        value(letter.key),
        [h.code(value(letter.error_code)), " ", value(message)],
        moment(letter.failed_at),
        resolution_of(letter),
    ]


def dead_letter_page(
    frame: Frame, detail: DeadLetterDetail, masks: Masks, notice: Child, actions: Child
) -> str:
    letter = detail.letter
    return frame.page(
        f"Dead letter {letter.id}",
        h.nav(
            h.a("Dead letters", href=frame.url("/dead-letters")), aria_label="Back", class_="crumbs"
        ),
        heading(
            [value(letter.event_type), " ", resolution_of(letter)],
            under=[f"Dead letter {letter.id} of ", value(letter.listener)],
        ),
        notice,
        facts(*_facts(frame, letter)),
        actions,
        panel("Errors", attempt_errors(detail.errors), note="of every attempt, the oldest first"),
        panel(
            "Payload",
            stored_json(detail.payload, masks, "Payload"),
            note="as it would be replayed"
            + (f"; edited {letter.edits} times" if letter.edits else ""),
        ),
        panel("Headers", stored_json(detail.headers, masks, "Headers")),
        at="/dead-letters",
    )


def _fingerprint(frame: Frame, letter: DeadLetter) -> Child:
    """Its fingerprint, which leads to all open ones that have it."""
    given = letter.error_fingerprint
    if given is None:
        return value(None)
    return h.a(value(given), href=frame.url(query("/dead-letters", {"fingerprint": given})))


def _facts(frame: Frame, letter: DeadLetter) -> list[tuple[str, Child]]:
    found: list[tuple[str, Child]] = [
        ("Listener", h.a(value(letter.listener), href=address_of(frame, letter.listener))),
        ("Event", h.a(str(letter.event_id), href=event_address(frame, letter.event_id))),
        ("Position", count(letter.position)),
        ("Key", value(letter.key)),
        ("Tenant", value(letter.tenant)),
        ("Given up (UTC)", moment(letter.failed_at)),
        ("Because", letter.reason),
        ("Error", _fingerprint(frame, letter)),
        ("Attempts", f"{letter.attempts}, {letter.crashes} crashes" if letter.crashes
         else str(letter.attempts)),
    ]  # fmt: skip
    if letter.resolution is not None:
        found += [
            ("Resolved (UTC)", moment(letter.resolved_at)),
            ("By", value(letter.resolved_by)),
            ("Why", value(letter.resolved_why)),
        ]
    return found
