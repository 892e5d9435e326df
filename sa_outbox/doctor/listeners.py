"""Listeners that nobody works on, that are paused, or that have dead letters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .case import in_words
from .finding import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sa_outbox.operations.overview import ListenerOverview

    from .case import Case


def find(case: Case) -> Iterator[Finding]:
    for each in case.overview.listeners:
        if each.cursors:
            yield from _nobodys(case, each)
            yield from _paused(case, each)
        if each.dead_letters:
            yield Finding(
                code="dead-letters",
                what=f"Listener {each.name!r} has deliveries that were given up: someone has to "
                "look at them, and replay or discard them.",
                fix=case.command("dead-letters", "list", "--listener", each.name),
                evidence={"listener": each.name, "dead_letters": each.dead_letters},
            )


def _nobodys(case: Case, each: ListenerOverview) -> Iterator[Finding]:
    if each.name in case.attended or not case.endpoints.get(each.name, True):
        return
    evidence = _evidence(each)
    declared = case.declared is None or each.name in {*case.declared, *case.endpoints}
    if not declared:
        yield Finding(
            code="listener-orphaned",
            what=f"Listener {each.name!r} is in the database, the program does not declare it, and "
            "no consumer works for it. No event above its cursor is ever removed.",
            fix=case.command("listeners", "retire", each.name),
            evidence=evidence,
        )
    elif case.overview.consumers and (case.declared is None or each.lag_events):
        yield Finding(
            code="listener-unattended",
            what=f"Consumers run, and none works for listener {each.name!r}: its events wait, and "
            "none above its cursor is ever removed.",
            fix="Start a consumer that declares it; if it was renamed or removed: "
            + case.command("listeners", "retire", each.name),
            evidence=evidence,
        )


def _paused(case: Case, each: ListenerOverview) -> Iterator[Finding]:
    if each.paused_at is None:
        return
    seconds = (case.overview.at - each.paused_at).total_seconds()
    if seconds >= case.thresholds.paused:
        yield Finding(
            code="listener-paused",
            what=f"Listener {each.name!r} has been paused for {in_words(seconds)}. Its events "
            "wait, and none above its cursor is removed.",
            fix=case.command("listeners", "resume", each.name),
            evidence={**_evidence(each), "paused_at": each.paused_at.isoformat()},
        )


def _evidence(each: ListenerOverview) -> dict[str, object]:
    age = each.lag_seconds
    return {
        "listener": each.name,
        "position": min(cursor.position for cursor in each.cursors),
        "events_waiting": each.lag_events,
        "oldest": None if age is None else in_words(age),
    }
