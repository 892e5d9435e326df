"""JSON as it is stored, for people: read without changing a digit, printed, compared.

Numbers stay the text they are: 1.10 is not shown as 1.1, and an edit of one field rounds no other.
"""

from __future__ import annotations

import json
from decimal import Decimal
from difflib import SequenceMatcher
from typing import Any, Final, Literal, NoReturn, TypeAlias

from .masking import EditRefused

MOST_SHOWN: Final = 200_000
"""Characters of one payload on a page."""

Change: TypeAlias = Literal["same", "removed", "added"]


class Number(str):
    """The digits of a number."""

    __slots__ = ()


def parse(text: str) -> Any:
    """Stored JSON. What a browser would not send back unchanged is not touched either."""
    return json.loads(text, parse_float=Number, parse_int=Number)


def parse_edited(text: str) -> Any:
    """What a person wrote. Raises :class:`EditRefused` with the place of the mistake."""

    def refuse(constant: str) -> NoReturn:
        raise EditRefused(f"{constant} is not JSON")

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, value in pairs:
            if name in found:
                raise EditRefused(f"the field {name!r} is there twice")
            found[name] = value
        return found

    try:
        return json.loads(
            text,
            parse_float=Number,
            parse_int=Number,
            parse_constant=refuse,
            object_pairs_hook=once,
        )
    except json.JSONDecodeError as error:
        raise EditRefused(
            f"not JSON: {error.msg}, line {error.lineno} column {error.colno}"
        ) from error
    except RecursionError as error:
        raise EditRefused("it is nested too deeply") from error


def pretty(value: Any, indent: str = "") -> str:
    """As JSON, a field a line."""
    inner = indent + "  "
    if isinstance(value, dict) and value:
        fields = [f"{inner}{_quoted(name)}: {pretty(each, inner)}" for name, each in value.items()]
        return "{\n" + ",\n".join(fields) + f"\n{indent}}}"
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join(inner + pretty(each, inner) for each in value) + f"\n{indent}]"
    return str(value) if isinstance(value, Number) else _quoted(value)


def plain(value: Any) -> Any:
    """With numbers as Python has them. Raises :class:`EditRefused` where one would be rounded."""
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [plain(each) for each in value]
    return _number(value) if isinstance(value, Number) else value


def _number(digits: Number) -> int | float:
    try:
        if digits.lstrip("-").isdigit():
            return int(digits)
        number = float(digits)
        if Decimal(repr(number)) == Decimal(digits):
            return number
    except (ValueError, ArithmeticError):
        pass
    raise EditRefused(f"the number {digits[:40]} would not be kept as it is")


def compare(before: str, after: str) -> list[tuple[Change, str]]:
    """Line by line: what was taken out, what was put in."""
    old, new = before.splitlines(), after.splitlines()
    found: list[tuple[Change, str]] = []
    for kind, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal":
            found.extend(("same", line) for line in old[a:b])
        else:
            found.extend(("removed", line) for line in old[a:b])
            found.extend(("added", line) for line in new[c:d])
    return found


def _quoted(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
