"""Stored JSON, formatted for people: parsed without changing a digit, and printed.

Numbers keep their text: 1.10 is not shown as 1.1, and an edit of one field rounds no other.
"""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any, Final, NoReturn

from .mask import EditRefused

MAX_SHOWN: Final = 200_000
"""Maximum characters of one payload on a page."""

# Control characters, line separators, and characters that reverse or hide text: after a U+202E, the
# operator who is to compare a payload would read the rest of it backwards.
_MISLEADING: Final = re.compile(
    "[\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)


class Number(str):
    """The digits of a number."""

    __slots__ = ()


def parse(text: str) -> Any:
    """Parse stored JSON. What a browser would not send back unchanged is not touched either."""
    return json.loads(text, parse_float=Number, parse_int=Number)


def parse_edited(text: str) -> Any:
    """Parse what an operator wrote. Raises :class:`EditRefused` with the position of the
    mistake."""

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
    """As JSON, one field per line."""
    inner = indent + "  "
    if isinstance(value, dict) and value:
        fields = [f"{inner}{_quoted(name)}: {pretty(each, inner)}" for name, each in value.items()]
        return "{\n" + ",\n".join(fields) + f"\n{indent}}}"
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join(inner + pretty(each, inner) for each in value) + f"\n{indent}]"
    return str(value) if isinstance(value, Number) else _quoted(value)


def plain(value: Any) -> Any:
    """With Python's numbers. Raises :class:`EditRefused` where one would be rounded."""
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


def _quoted(value: Any) -> str:
    """As JSON, escaping everything that would change how the surrounding text is read."""
    return _MISLEADING.sub(_escaped, json.dumps(value, ensure_ascii=False))


def _escaped(found: re.Match[str]) -> str:
    code = found[0].encode("utf-16-be").hex()
    return "".join(f"\\u{code[at : at + 4]}" for at in range(0, len(code), 4))
