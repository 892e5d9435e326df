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
    """A sentence or two for a person: what is the case, and what it means."""
    mend: str
    """The statement or command that mends it, or what to think about before one does."""
    evidence: Mapping[str, object] = field(default_factory=dict)
    """What was seen. Never a payload, a key, a password or the literal of a query."""

    @property
    def severity(self) -> Severity:
        return CODES[self.code]

    def as_json(self) -> dict[str, object]:
        return {
            "code": self.code,
            "severity": self.severity,
            "what": self.what,
            "evidence": dict(self.evidence),
            "mend": self.mend,
        }
