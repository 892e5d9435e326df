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
        if item.fate in ("cancel", "withdraw"):
            found.append(_record(item, "cancelled", item.attempts))
            continue
        if item.failure is None and item.fate != "done":
            continue  # not attempted: scheduled, or behind another one
        if audit == "all":
            attempt = item.attempts + (0 if counted else 1)
            found.append(_record(item, "started", attempt, ago=item.seconds))
            if item.fate == "done":
                found.append(_record(item, "succeeded", attempt))
        if item.failure is not None:
            found += _failed(item)
    return found


def _failed(item: Item) -> list[dict[str, Any]]:
    failure = item.failure
    assert failure is not None  # noqa: S101 - for mypy: the caller has looked
    failed = _record(item, "failed", item.attempts, detail={"code": failure.code})
    if item.fate == "dead":
        return [
            failed,
            _record(item, "deadlettered", item.attempts, detail={"reason": item.reason}),
        ]
    delay = {"delay_seconds": round(item.delay, 3)}
    return [failed, _record(item, "retried", item.attempts, detail=delay)]


def _record(
    item: Item, action: str, attempt: int, *, ago: float = 0.0, detail: dict[str, Any] | None = None
) -> dict[str, Any]:
    return {
        "position": item.position,
        "action": action,
        "attempt": attempt,
        "ago": ago,
        "detail": detail or {},
    }
