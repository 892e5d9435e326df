"""What the audit says of deliveries that are being settled. Pure; written with the settlement."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sa_outbox.settings import Audit

    from .item import Item


def records(items: Iterable[Item], audit: Audit, *, counted: bool) -> list[dict[str, Any]]:
    """One object for each record, in the order in which things happened. Not *counted*: the last
    attempt of each item is not among its attempts yet."""
    if audit == "off":
        return []
    found: list[dict[str, Any]] = []
    for item in items:
        if item.failure is None and item.fate not in ("done", "cancel", "withdraw"):
            continue  # not attempted: scheduled, or behind another one
        attempt = item.attempts + (0 if counted else 1)
        if item.failure is not None:
            attempt = item.failure.attempt
        has_begun = item.fate == "done" or item.failure is not None or item.interrupted
        if audit == "all" and has_begun:
            found.append(_record(item, "started", attempt, ago=item.seconds))
        if item.failure is not None:
            found.append(_record(item, "failed", attempt, detail={"code": item.failure.code}))
        found += _ended(item, attempt, audit)
    return found


def _ended(item: Item, attempt: int, audit: Audit) -> list[dict[str, Any]]:
    match item.fate:
        case "done":
            return [_record(item, "succeeded", attempt)] if audit == "all" else []
        case "cancel" | "withdraw":
            return [_record(item, "cancelled", attempt)]
        case "dead":
            return [_record(item, "deadlettered", attempt, detail={"reason": item.reason})]
        case _:
            # The statement knows better if somebody has cancelled it and we were not told yet.
            delay = {"delay_seconds": round(item.delay, 3)}
            return [_record(item, "retried", attempt, detail=delay)]


def _record(
    item: Item, action: str, attempt: int, *, ago: float = 0.0, detail: dict[str, Any] | None = None
) -> dict[str, Any]:
    return {
        "position": item.position,
        "action": action,
        "attempt": attempt or None,
        "ago": ago,
        "detail": detail or {},
    }
