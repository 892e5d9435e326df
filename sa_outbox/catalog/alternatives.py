"""A schema as the alternatives that it consists of, and in words."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from .dialect import ANNOTATIONS, PLACE

if TYPE_CHECKING:
    from .dialect import Parts, Schema

MAX_SHOWN: Final = 60
_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
    "array": (list,),
    "object": (dict,),
}


def resolved(schema: Any, parts: Parts) -> Schema:
    """Without a reference at its top."""
    seen: set[str] = set()
    while isinstance(schema, dict) and "$ref" in schema:
        name = schema["$ref"].removeprefix(PLACE)
        if name in seen or name not in parts:
            return {}
        seen.add(name)
        schema = parts[name]
    return schema if isinstance(schema, dict) else {}


def alternatives(schema: Any, parts: Parts) -> list[Schema]:
    """Schemas of one type, or of some values, that together say the same."""
    node = resolved(schema, parts)
    for where in ("anyOf", "oneOf"):
        if where in node:
            rest = {name: each for name, each in node.items() if name != where}
            found = [one for each in node[where] for one in alternatives(each, parts)]
            return [_joined(rest, each) for each in found]
    if "allOf" in node:
        rest = {name: each for name, each in node.items() if name != "allOf"}
        found = [rest]
        for each in node["allOf"]:
            found = [_joined(one, other) for one in found for other in alternatives(each, parts)]
        return found
    kinds = node.get("type")
    if isinstance(kinds, list):
        return [{**node, "type": kind} for kind in kinds]
    return [node]


def _joined(outer: Schema, inner: Schema) -> Schema:
    """Both hold; annotations of a whole say nothing about its part."""
    kept = {name: each for name, each in outer.items() if name not in ANNOTATIONS}
    return {**inner, **kept} if kept else inner  # itself, by which a recursion is recognised


def accepts(schema: Schema, value: Any) -> bool:
    """Whether an alternative takes a single value, as far as its type tells."""
    if "enum" in schema:
        # By their JSON: to Python, 1 and True are equal.
        return json.dumps(value) in map(json.dumps, schema["enum"])
    if "type" not in schema:
        return True
    if "format" in schema or "pattern" in schema:
        return False
    if isinstance(value, bool):
        return bool(schema["type"] == "boolean")
    return isinstance(value, _TYPES.get(schema["type"], ()))


def phrase(schema: Schema, parts: Parts | None = None) -> str:
    """For people: ``integer``, ``string (uuid) or null``, ``"red", "blue"``."""
    options = alternatives(schema, parts) if parts is not None else [schema]
    return " or ".join(dict.fromkeys(map(_shown, options)))


def _shown(schema: Schema) -> str:
    if "enum" in schema:
        text = ", ".join(json.dumps(each, ensure_ascii=False) for each in schema["enum"])
        return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."
    kind = schema.get("type", "anything")
    if kind == "object" and "title" in schema:
        return f"object ({schema['title']})"
    return f"{kind} ({schema['format']})" if "format" in schema else str(kind)
