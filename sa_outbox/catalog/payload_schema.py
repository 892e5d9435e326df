"""The schemas of a class: what its library reads, and what it writes.

They differ: a field with a default may be missing when it is read, and is always written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import inspect as shapes

from ..errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .dialect import Schema


@dataclass(frozen=True, slots=True)
class PayloadSchemas:
    """Each complete, with its own definitions."""

    reading: Schema
    """What the class accepts: every payload that was stored in its version."""
    writing: Schema
    """What objects of it are stored as from now on."""


def schemas_of(event_type: str, cls: type) -> PayloadSchemas:
    """From the library that reads the class. Raises :class:`ConfigError` if it has no schema."""
    try:
        made = [
            _by_pydantic(cls, writing=writing) if is_of_pydantic(cls) else _by_msgspec(cls, writing)
            for writing in (False, True)
        ]
    except Exception as error:  # schemas of fields are user code, and each library has its errors
        raise ConfigError(
            f"{cls.__qualname__}, the class of {event_type!r}, has no JSON Schema: "
            f"{type(error).__name__}: {error}"
        ) from error
    return PayloadSchemas(*made)


def is_of_pydantic(cls: type) -> bool:
    return hasattr(cls, "model_validate_json") or "__pydantic_validator__" in vars(cls)


def _by_pydantic(cls: type, *, writing: bool) -> Schema:
    from .pydantic_schema import schema_of  # noqa: PLC0415 - few programs have pydantic

    made: Schema = schema_of(cls, writing=writing)
    return made


def _by_msgspec(cls: type, writing: bool) -> Schema:  # noqa: FBT001 - of a pair
    """``msgspec.Struct``, dataclass or attrs class."""

    def of_another_library(field: type) -> Schema:
        if not is_of_pydantic(field):
            return {"title": field.__qualname__}  # nothing is known of it, so nothing is said
        made: Schema = _apart(_by_pydantic(field, writing=writing), field.__qualname__)
        return made

    classes = list(_classes(shapes.type_info(cls), set()))
    types = [each.cls for each in classes]
    references, defined = msgspec.json.schema_components(
        [cls, *types], schema_hook=of_another_library, ref_template="#/$defs/{name}"
    )
    for shape, reference in zip(classes, references[1:], strict=True):
        _refine(shape, defined[reference["$ref"].removeprefix("#/$defs/")], writing=writing)
    return dict(references[0], **{"$defs": defined})


def _classes(shape: Any, seen: set[Any]) -> Iterator[Any]:
    """Every class with fields that is in *shape*, itself included."""
    if hasattr(shape, "fields"):
        if shape.cls in seen:
            return
        seen.add(shape.cls)
    if isinstance(shape, (shapes.StructType, shapes.DataclassType)):
        yield shape
    for inside in _inside(shape):
        yield from _classes(inside, seen)


def _inside(shape: Any) -> Iterator[Any]:
    for field in getattr(shape, "fields", ()):
        yield field.type
    for name in ("type", "item_type", "key_type", "value_type"):
        if hasattr(shape, name):
            yield getattr(shape, name)
    yield from getattr(shape, "types", ())
    yield from getattr(shape, "item_types", ())


def _refine(shape: Any, schema: Schema, *, writing: bool) -> None:
    """What msgspec's schema does not say: which fields are always written, and which are times."""
    if schema["type"] == "array":
        if writing:
            schema["minItems"] = len(schema["prefixItems"])
        return
    properties = schema["properties"]
    for field in shape.fields:
        _mark_times(field.type, properties[field.encode_name])
    if writing:
        absent = {each.encode_name for each in shape.fields if _may_be_unset(each)}
        schema["required"] = [name for name in properties if name not in absent]


def _may_be_unset(field: Any) -> bool:
    given = (field.default, field.default_factory)
    return not field.required and given == (msgspec.NODEFAULT, msgspec.NODEFAULT)


def _mark_times(shape: Any, schema: Any) -> None:
    """Stored times have a time zone; msgspec says so only for those that must have one."""
    while isinstance(shape, shapes.Metadata):
        shape = shape.type
    if isinstance(shape, shapes.DateTimeType):
        schema.setdefault("format", "date-time")
    elif isinstance(shape, shapes.UnionType):
        for each in shape.types:
            for option in schema.get("anyOf", ()):
                if option == {"type": "string"}:
                    _mark_times(each, option)
    elif isinstance(shape, shapes.CollectionType):
        _mark_times(shape.item_type, schema.get("items"))
    elif isinstance(shape, shapes.DictType):
        _mark_times(shape.value_type, schema.get("additionalProperties"))
    elif isinstance(shape, shapes.TupleType):
        for each, item in zip(shape.item_types, schema.get("prefixItems", ()), strict=False):
            _mark_times(each, item)


def _apart(schema: Any, prefix: str) -> Any:
    """With definitions whose names can't be those of another library."""
    if isinstance(schema, list):
        return [_apart(each, prefix) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: _apart(each, prefix) for name, each in schema.items()}
    if "$defs" in made:
        made["$defs"] = {f"{prefix}.{name}": each for name, each in made["$defs"].items()}
    if isinstance(made.get("$ref"), str):
        made["$ref"] = made["$ref"].replace("#/$defs/", f"#/$defs/{prefix}.")
    return made
