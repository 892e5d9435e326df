"""What the audit says of deliveries that are being settled. Pure; written with the settlement."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from sa_outbox.operations.audit import Action
    from sa_outbox.settings import Audit

    from ..handler.delivery import InFlight


def records(
    items: Iterable[InFlight], audit: Audit, noted: Container[int] = (), *, counted: bool
) -> list[dict[str, Any]]:
    """One object for each record, in the order in which things happened. Not *counted*: the last
    attempt of each item is not among its attempts yet. *noted*: positions that were attempted with
    care, because a process vanished that may have started them before."""
    if audit == "off":
        return []
    found: list[dict[str, Any]] = []
    for item in items:
        if item.failure is None and item.outcome not in ("done", "cancel", "withdraw"):
            continue  # not attempted: scheduled, or behind another one
        if item.aside and item.outcome == "dead":  # never attempted
            found += _ended(item, item.attempts, audit)
            continue
        attempt = item.attempts + (0 if counted else 1)
        if item.failure is not None:
            attempt = item.failure.attempt
        if audit == "all" and _has_begun(item):
            detail = {"after_crash": True} if item.position in noted else {}
            found.append(_record(item, "started", attempt, ago=item.seconds, detail=detail))
        if item.failure is not None:
            found.append(_record(item, "failed", attempt, detail={"code": item.failure.code}))
        found += _ended(item, attempt, audit)
    return found


def _has_begun(item: InFlight) -> bool:
    if item.outcome == "dead" and item.reason == "crashes":
        return item.interrupted  # else it was given up for earlier attempts, which are recorded
    return item.outcome == "done" or item.failure is not None or item.interrupted


def _ended(item: InFlight, attempt: int, audit: Audit) -> list[dict[str, Any]]:
    match item.outcome:
        case "done":
            return [_record(item, "succeeded", attempt)] if audit == "all" else []
        case "cancel" | "withdraw":
            return [_record(item, "cancelled", attempt)]
        case "dead":
            return [_record(item, "deadlettered", attempt, detail={"reason": item.reason})]
        case _:
            # The statement knows better if someone has cancelled it and we do not know yet.
            delay = {"delay_seconds": round(item.delay, 3)}
            return [_record(item, "retried", attempt, detail=delay)]


def _record(
    item: InFlight,
    action: Action,
    attempt: int,
    *,
    ago: float = 0.0,
    detail: dict[str, Any] | None = None,
) -> dict[str, Any]:
    return {
        "position": item.position,
        "action": action,
        "attempt": attempt or None,
        "ago": ago,
        "detail": detail or {},
    }
