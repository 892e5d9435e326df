"""One difference between a committed catalogue and the program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Protects: TypeAlias = Literal["stored", "deploy", "receivers"]
"""Whom a rule protects: the new release, which reads what the old one has stored; consumers of the
old release beside producers of the new one; receivers of a relay."""


@dataclass(frozen=True, slots=True)
class Change:
    """One difference between the committed catalogue and the program."""

    subject: str
    """The event type, listener or relay that changed."""
    what: str
    protects: Protects | None = None
    """Which rule it breaks; None: none."""
    breaks: tuple[str, ...] = ()
    """The listeners and relays of this program that read the event type, with the class, if any."""
    fix: str | None = None
    """What helps."""
    instead: str | None = None
    """What helps with less, for this change alone."""
