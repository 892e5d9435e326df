"""Event fields in a subject or routing key: each stays one word.

Both are words separated by dots, and receivers filter by words. A tenant or key that contains a dot
or a wildcard would change the words. So characters with a meaning are percent-encoded, and so is
``%``: two values never collide. Pure.
"""

from __future__ import annotations

import re
from typing import Final

_OF_A_TYPE = "./"
"""An event type may contain them: the program defines what its words are."""


class Words:
    """*reserved* are the characters with a meaning, besides spaces and control characters."""

    def __init__(self, reserved: str) -> None:
        in_types = "".join(each for each in reserved if each not in _OF_A_TYPE)
        self._field = re.compile(rf"[\s\x00-\x20\x7f%{re.escape(reserved)}]")
        self._type = re.compile(rf"[\s\x00-\x20\x7f%{re.escape(in_types)}]")

    def one(self, field: str) -> str:
        """A key or a tenant: one word, whatever it contains."""
        return self._field.sub(_encoded, field)

    def some(self, event_type: str) -> str:
        """An event type, with its own words."""
        return self._type.sub(_encoded, event_type)


NATS: Final = Words(".*>")
RABBITMQ: Final = Words(".*#/")


def _encoded(found: re.Match[str]) -> str:
    return "".join(f"%{each:02X}" for each in found[0].encode())
