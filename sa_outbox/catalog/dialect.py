"""Schemas in one dialect and one place: draft 7, which is AsyncAPI's, under ``components``.

pydantic and msgspec write the draft of 2020-12, each with definitions of its own. What is left out
are default values: a reader fills them in for itself, and they may come from its environment.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Schema: TypeAlias = dict[str, Any]
"""A JSON Schema; what may stand in one is for the specification to say."""

Parts: TypeAlias = Mapping[str, Schema]
"""The components that a schema refers to, by name."""
PLACE: Final = "#/components/schemas/"
ANNOTATIONS: Final = frozenset(
    {"title", "description", "examples", "deprecated", "readOnly", "writeOnly", "$comment"}
)
"""Keywords that say something to people and nothing to a reader of payloads."""
_LEFT_OUT: Final = ("default", "discriminator", "$schema", "$defs", "definitions")
_MAPS: Final = ("properties", "patternProperties")
_LISTS: Final = ("anyOf", "oneOf", "allOf", "prefixItems")
_INSIDE: Final = ("items", "additionalItems", "additionalProperties", "propertyNames", "contains",
                  "not", "if", "then", "else")  # fmt: skip
_DEFINED = re.compile(r"#/(?:\$defs|definitions)/(.+)")


def component_name(event_type: str) -> str:
    """An event type as a name under ``components``. No two become one: an event type has no two
    marks side by side."""
    return event_type.replace(":", "..").replace("/", "-.")


def components_of(name: str, schema: Schema) -> dict[str, Schema]:
    """*schema* under *name*, and each of its definitions as a component of its own."""
    definitions: dict[str, Schema] = {}
    _collect(schema, definitions)
    root = _DEFINED.fullmatch(schema.get("$ref", "")) if _is_only_a_reference(schema) else None
    if root is not None:
        schema = definitions.pop(root[1])
    own = None if root is None else root[1]

    def placed(definition: str) -> str:
        return PLACE + (name if definition in ("", own) else _part(name, definition))

    parts = {_part(name, each): _drafted(part, placed) for each, part in definitions.items()}
    return {name: _drafted(schema, placed), **parts}


def _part(name: str, definition: str) -> str:
    shown = re.sub(r"[^A-Za-z0-9._-]", lambda found: f"_{ord(found[0]):x}", definition)
    return f"{name}--{shown}"  # nor is this the name of another event type


def _is_only_a_reference(schema: Schema) -> bool:
    return not schema.keys() - {"$ref", *_LEFT_OUT}


def _collect(schema: Schema, found: dict[str, Schema]) -> None:
    """Definitions, wherever they are: those of one library may be inside another's."""
    own = {**schema.get("definitions", {}), **schema.get("$defs", {})}
    found.update(own)
    for each in (*own.values(), *inside(schema)):
        _collect(each, found)


def inside(schema: Schema) -> Iterator[Schema]:
    """The schemas that are directly in *schema*, without its definitions."""
    found = [each for where in _MAPS for each in schema.get(where, {}).values()]
    for where in (*_LISTS, *_INSIDE):
        each = schema.get(where)
        found += each if isinstance(each, list) else [each]
    return (each for each in found if isinstance(each, dict))


def closed(schema: Schema) -> Schema:
    """*schema*, of what a class writes: no fields but its own."""
    for each in inside(schema):
        closed(each)
    if "properties" in schema:
        schema.setdefault("additionalProperties", False)
    return schema


def _drafted(schema: Any, placed: Callable[[str], str]) -> Any:
    if not isinstance(schema, dict):
        return schema
    made: Schema = {name: each for name, each in schema.items() if name not in _LEFT_OUT}
    _lay_out_tuples(made)
    for where in _MAPS:
        if where in made:
            made[where] = {name: _drafted(each, placed) for name, each in made[where].items()}
    for where in (*_LISTS, *_INSIDE):
        inside = made.get(where)
        if isinstance(inside, list):
            made[where] = [_drafted(each, placed) for each in inside]
        elif where in made:
            made[where] = _drafted(inside, placed)
    _put_in_order(made)
    return _referring(made, placed)


def _lay_out_tuples(made: Schema) -> None:
    if "prefixItems" in made:
        rest = made.pop("items", None)
        made["items"] = made.pop("prefixItems")
        if rest is not None:
            made["additionalItems"] = rest


def _put_in_order(made: Schema) -> None:
    if "const" in made:
        made["enum"] = [made.pop("const")]
    if "enum" in made:
        made["enum"] = sorted(made["enum"], key=json.dumps)
    if "required" in made:
        made["required"] = sorted(made["required"])
        if not made["required"]:
            del made["required"]
    if isinstance(made.get("description"), str):
        made["description"] = inspect.cleandoc(made["description"])


def _referring(made: Schema, placed: Callable[[str], str]) -> Schema:
    """In this draft, whatever stands beside a reference is ignored."""
    reference = made.pop("$ref", None)
    if reference is None:
        return made
    found = _DEFINED.fullmatch(reference)
    target = {"$ref": placed(found[1] if found else "")}
    return {**made, "allOf": [*made.get("allOf", ()), target]} if made else target
