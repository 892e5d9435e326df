"""A listener's state as a word and a tone: decided from what was read, worst first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sa_outbox.operations.overview import ListenerOverview, Overview

    from .parts import Tone

BEHIND_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Standing:
    word: str
    tone: Tone


_ALONE: Final = Standing("no consumer", "bad")


def standing(listener: ListenerOverview, seen: Overview) -> Standing:
    lag = listener.lag_seconds or 0.0
    if not listener.cursors:
        return Standing("gone", "quiet")
    if listener.paused_at is not None:
        return Standing("paused", "info")
    if any(each.lease_expired for each in listener.cursors):
        return Standing("holder died", "bad")
    if listener.retry_count:
        return Standing("retrying", "warn")
    if lag > BEHIND_SECONDS:
        return Standing("behind", "warn") if _served(listener, seen) else _ALONE
    if not seen.consumers:
        return _ALONE if lag else Standing("no consumer", "warn")
    if listener.dead_letters:
        return Standing("dead letters", "warn")
    return Standing("fine", "good")


def _served(listener: ListenerOverview, seen: Overview) -> bool:
    """A process has announced that it works on it, or has claimed some of its events: a queue shows
    no other sign."""
    announced = any(listener.name in each.listeners for each in seen.consumers)
    return announced or bool(listener.ranges.ranges) or bool(listener.owners)
