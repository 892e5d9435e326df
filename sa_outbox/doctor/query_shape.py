"""The beginning of a query, without anything that may be secret. Pure."""

from __future__ import annotations

import re

LONGEST = 80

_TOKEN = re.compile(
    r"""
    (?P<space>\s+)
  | (?P<line>--[^\n]*)
  | (?P<block>/\*)
  | (?P<identifier>"(?:[^"]|"")*")
  | (?P<parameter>\$\d+)
  | (?P<number>(?:\d[\w.]*|\.\d[\w.]*))
  | (?P<word>[^\W\d]\w*)
  | (?P<quote>['"$\\])
  | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_NEST = re.compile(r"/\*|\*/")


def shape(query: str) -> str:
    """*query* up to its first text literal, with numbers as ``?`` and without comments, truncated.

    It ends at the first quote. Where a literal ends depends on how it begins and on a session
    setting, and the server truncates long queries: after a wrong guess, the content of the next
    literal would be shown.
    """
    shown: list[str] = []
    place = 0
    while place < len(query):
        found = _TOKEN.match(query, place)
        assert found is not None  # noqa: S101 - "other" matches any character
        place, kind = found.end(), found.lastgroup
        if kind == "quote":
            shown.append("…")
            break
        if kind == "block":
            place = _end_of_comment(query, place)
        elif kind == "number":
            shown.append("?")
        elif kind in ("space", "line"):
            shown.append(" ")
        else:
            shown.append(found.group())
    text = " ".join("".join(shown).split())
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _end_of_comment(query: str, place: int) -> int:
    """Comments nest; an unterminated one hides the rest."""
    depth = 1
    for found in _NEST.finditer(query, place):
        depth += 1 if found.group() == "/*" else -1
        if depth == 0:
            return found.end()
    return len(query)
