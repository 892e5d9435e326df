"""The errors of a delivery's attempts, as they are stored; whatever somebody has written there.

We write an array of objects. An older version may have written other fields, and anybody with SQL
anything at all, of any depth and size. What is returned has one shape, so a page or a command that
shows it needs no checks.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_SHOWN: Final = 100
"""How many are shown of errors (the latest), of causes, of frames (the first)."""
MAX_TEXT: Final = 20_000
"""Characters of a text that are shown."""
_TEXTS: Final = ("code", "error", "message", "fingerprint", "at")
_OF_FRAMES: Final = ("file", "function", "code")


def parse_errors(text: str) -> tuple[Mapping[str, Any], ...]:
    """The errors, oldest first. Each has ``attempt`` (a number or None), and if they were stored
    the texts ``at``, ``error``, ``code``, ``message`` and ``fingerprint``, a list of texts
    ``causes``, and the ``traceback``: a list of errors, each with its ``type`` and ``frames``."""
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError):
        found = [{"message": text}]
    listed = found if isinstance(found, list) else [found]
    return tuple(_error(each) for each in listed[-MAX_SHOWN:])


def _error(stored: object) -> dict[str, Any]:
    if not isinstance(stored, dict):
        return {"attempt": None, "message": _text(stored)}
    kept: dict[str, Any] = {"attempt": _number(stored.get("attempt"))}
    kept |= {name: _text(stored[name]) for name in _TEXTS if stored.get(name) is not None}
    if stored.get("causes"):
        kept["causes"] = [_text(each) for each in _listed(stored["causes"])]
    if stored.get("traceback"):
        kept["traceback"] = [_raised(each) for each in _listed(stored["traceback"])]
    return kept


def _raised(stored: object) -> dict[str, Any]:
    if not isinstance(stored, dict):
        return {"type": _text(stored), "frames": []}
    kept: dict[str, Any] = {"type": _text(stored.get("type"))}
    if stored.get("relation"):
        kept["relation"] = _text(stored["relation"])
    kept["frames"] = [_frame(each) for each in _listed(stored.get("frames") or [])]
    for name in ("omitted", "omitted_after"):
        if (number := _number(stored.get(name))) is not None:
            kept[name] = number
    return kept


def _frame(stored: object) -> dict[str, Any]:
    if not isinstance(stored, dict):
        return {"file": _text(stored)}
    kept: dict[str, Any] = {name: _text(stored[name]) for name in _OF_FRAMES if stored.get(name)}
    line = _number(stored.get("line"))
    return kept if line is None else {**kept, "line": line}


def _listed(stored: object) -> list[object]:
    return stored[:MAX_SHOWN] if isinstance(stored, list) else [stored]


def _number(stored: object) -> int | None:
    return stored if type(stored) is int and abs(stored) < 2**63 else None


def _text(stored: object) -> str:
    if isinstance(stored, str):
        return stored[:MAX_TEXT]
    try:
        return json.dumps(stored)[:MAX_TEXT]
    except (ValueError, RecursionError):
        return "(too deep to be shown)"
