"""Where an event comes from, for logs: its tenant and project, its request, its correlation.

Read from the row as it is stored: most events are never logged, so nothing is decoded before it is
asked for, and of the headers only these few.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

    from .event import Event

MAX_CHARACTERS: Final = 512
"""Longest value that is shown: not only our producers write to the log."""
_Text = Annotated[str, msgspec.Meta(max_length=MAX_CHARACTERS)]


class _Headers(msgspec.Struct, gc=False):
    request_id: _Text = ""
    correlation_id: _Text = ""
    project_id: _Text = ""


HEADERS: Final = ("request_id", "correlation_id", "project_id")
"""The headers that are shown, in the order in which ``identifiers`` returns them."""
NAMES: Final = ("tenant", *HEADERS)
_decode: Final[Callable[[str], _Headers]] = msgspec.json.Decoder(_Headers).decode


def identifiers(headers: str | None) -> tuple[str, str, str]:
    """Those of ``HEADERS`` that stored *headers* have; empty for one that is no printable text.

    Never raises: what can't be decoded fails in the handler, and not in a log line about it.
    """
    if headers is None or headers == "{}":
        return "", "", ""
    try:
        found = _decode(headers)
    except (ValueError, RecursionError):  # it may be nested more deeply than any header of ours
        return _each(headers)
    request, correlation, project = found.request_id, found.correlation_id, found.project_id
    if request.isprintable() and correlation.isprintable() and project.isprintable():
        return request, correlation, project
    return _shown(request), _shown(correlation), _shown(project)


def _each(headers: str) -> tuple[str, str, str]:
    """One of them is no text, or too long: the others are shown all the same."""
    try:
        found = msgspec.json.decode(headers)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        return "", "", ""
    request, correlation, project = (_shown(found.get(name)) for name in HEADERS)
    return request, correlation, project


def _shown(value: object) -> str:
    if not isinstance(value, str) or not value.isprintable() or len(value) > MAX_CHARACTERS:
        return ""
    return value


@dataclass(slots=True, eq=False, repr=False)
class Origin:
    """The origin of one event, decoded when it is asked for."""

    _tenant: str | None = None
    _headers: str | None = None

    @property
    def known(self) -> dict[str, str]:
        """What is known of ``NAMES``."""
        values = (_shown(self._tenant), *identifiers(self._headers))
        return {name: value for name, value in zip(NAMES, values, strict=True) if value}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Origin) and self.known == other.known

    def __hash__(self) -> int:
        return hash(tuple(self.known.items()))

    def __repr__(self) -> str:
        return f"Origin({self.known})"  # not the headers: a repr ends up in logs


def origin_of(event: Event[object]) -> Origin:
    """The origin of an event whose row is not at hand. Never raises: headers that nobody has asked
    for are not decoded, for perhaps they can't be."""
    headers = event._headers  # noqa: SLF001 - as they are stored, if they are
    if not isinstance(headers, str):
        headers = msgspec.json.encode(dict(headers)).decode()
    return Origin(event.tenant, headers)
