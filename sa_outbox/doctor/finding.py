"""One thing that the doctor found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .codes import CODES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .codes import Severity


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    code: str
    what: str
    """A sentence or two for people: what was found, and what it means."""
    fix: str
    """The statement or command that fixes it, or what to consider first."""
    evidence: Mapping[str, object] = field(default_factory=dict)
    """What was observed. Never a payload, a key, a password or a literal of a query."""

    @property
    def severity(self) -> Severity:
        return CODES[self.code]

    def as_json(self) -> dict[str, object]:
        return {
            "code": self.code,
            "severity": self.severity,
            "what": self.what,
            "evidence": dict(self.evidence),
            "fix": self.fix,
        }
