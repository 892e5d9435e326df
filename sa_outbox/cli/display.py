"""Terminal output: aligned tables, times, and nothing that controls the terminal."""

from __future__ import annotations

import json
import os
import sys
import unicodedata
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Sequence

NARROWEST = 4
"""Minimum width of a column when the terminal is too narrow for all of them."""
MASKED = "***"
_NAMES: dict[type, list[str]] = {}


def escaped(value: object, *, lines: bool = False) -> str:
    """*value* as text that can't control the terminal: control characters, including those that
    change the writing direction, are shown by their code."""
    text = "" if value is None else str(value)
    return "".join(
        each
        if each.isprintable() or each == " " or (lines and each == "\n")
        else f"\\x{ord(each):02x}"
        if ord(each) < 256
        else f"\\u{ord(each):04x}"
        for each in text
    )


def table(headers: Sequence[str], rows: Sequence[Sequence[object]], *, width: int = 0) -> str:
    """Aligned columns, two spaces between them; numbers right-aligned. If it is wider than the
    terminal, empty columns are left out, then the widest are truncated first; without a terminal
    nothing is."""
    cells = [[escaped(value) for value in row] for row in rows]
    widths = [
        max([_width(header), *(_width(row[at]) for row in cells)])
        for at, header in enumerate(headers)
    ]
    room = width or _terminal_width()
    if room and _line_width(widths) > room:
        full = [at for at in range(len(headers)) if not cells or any(row[at] for row in cells)]
        headers, widths = [headers[at] for at in full], [widths[at] for at in full]
        rows, cells = _columns(rows, full), _columns(cells, full)
        while _line_width(widths) > room and max(widths) > NARROWEST:
            widths[widths.index(max(widths))] -= 1
    right = [
        bool(rows) and all(isinstance(row[at], (int, float)) or row[at] is None for row in rows)
        for at in range(len(headers))
    ]
    lines = [
        "  ".join(
            _fitted(cell, size, to_the_right=to_the_right)
            for cell, size, to_the_right in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in (headers, *cells)
    ]
    return "\n".join([click.style(lines[0], bold=True), *lines[1:]])


def span(seconds: float | None) -> str:
    """``950ms``, ``12s``, ``3m 20s``, ``5h 10m``, ``2d 3h``; ``-`` for none."""
    if seconds is None:
        return "-"
    if seconds < 1:
        return f"{max(0.0, seconds) * 1000:.0f}ms"
    whole = int(seconds)
    for size, unit, smaller, name in (
        (86400, "d", 3600, "h"),
        (3600, "h", 60, "m"),
        (60, "m", 1, "s"),
    ):
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size}{unit}" + (f" {rest}{name}" if rest else "")
    return f"{whole}s"


def holder(*owners: str | None) -> str:
    """``app-1:4711``: the host and the process of each lease's owner. What tells two consumers of
    one process apart is left out."""
    shown = dict.fromkeys(each.rpartition(":")[0] or each for each in owners if each)
    return ", ".join(shown) or "-"


def moment(at: datetime | None) -> str:
    return "-" if at is None else at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def as_json(value: object) -> str:
    """For programs: one object, with times as ISO 8601."""
    return json.dumps(plain(value), indent=2, ensure_ascii=True)


def plain(value: object) -> Any:
    """A dataclass with its properties, as plain JSON values."""
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if names := _names_in(type(value)):
        return {name: plain(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in value.items()}
    return str(value)


def _names_in(cls: type) -> list[str]:
    """Fields and properties of a dataclass; none for other classes."""
    if cls not in _NAMES:
        names = [each.name for each in fields(cls)] if is_dataclass(cls) else []
        if names:
            names += [name for name, of in vars(cls).items() if isinstance(of, property)]
        _NAMES[cls] = names
    return _NAMES[cls]


def document(text: str | None, masks: Sequence[str] = ()) -> str:
    """A stored JSON document, indented, with the fields named in *masks* masked at any depth."""
    if text is None:
        return "-"
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return MASKED if masks else escaped(text)
    # Everything beyond ASCII as \\uXXXX, including what changes the writing direction.
    return json.dumps(_masked(found, frozenset(masks)), indent=2, ensure_ascii=True)


def colours() -> bool | None:
    """For ``ctx.color``: none when NO_COLOR is set; otherwise click decides by the output."""
    return False if os.environ.get("NO_COLOR") else None


def facts(pairs: Mapping[str, object]) -> str:
    """``name  value`` line by line."""
    size = max(map(len, pairs))
    return "\n".join(f"{name:<{size}}  {escaped(value)}" for name, value in pairs.items())


def _line_width(widths: Sequence[int]) -> int:
    return sum(widths) + 2 * (len(widths) - 1)


def _columns(rows: Sequence[Sequence[Any]], chosen: Sequence[int]) -> list[list[Any]]:
    return [[row[at] for at in chosen] for row in rows]


def _masked(value: Any, masks: frozenset[str]) -> Any:
    if isinstance(value, dict):
        return {
            name: MASKED if name in masks else _masked(each, masks) for name, each in value.items()
        }
    if isinstance(value, list):
        return [_masked(each, masks) for each in value]
    return value


def _fitted(text: str, size: int, *, to_the_right: bool) -> str:
    if _width(text) > size:
        kept = ""
        for each in text:
            if _width(kept + each) > size - 1:
                break
            kept += each
        text = kept + "…"
    padding = " " * (size - _width(text))
    return padding + text if to_the_right else text + padding


def _width(text: str) -> int:
    """Terminal cells: some characters take two, some none."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(each) else 2 if unicodedata.east_asian_width(each) in "WF" else 1
        for each in text
    )


def _terminal_width() -> int:
    """0: there is no terminal. Then COLUMNS says nothing: readline exports it to whatever an
    interactive program starts, and the reader of a pipe would get half a name."""
    import shutil  # noqa: PLC0415 - a few milliseconds that programs, who want JSON, need not wait

    if not sys.stdout.isatty():
        return 0
    return shutil.get_terminal_size((200, 50)).columns
