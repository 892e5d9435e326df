"""The schemas of a class of pydantic, as its events are written: in JSON mode, round trip, by
alias. Imported for such a class only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticOmit

if TYPE_CHECKING:
    from .dialect import Schema


class _Generator(GenerateJsonSchema):
    """What pydantic's own does not know of: a round trip. And alike for every version of it."""

    def field_is_required(self, field: Any, *args: Any, **named: Any) -> bool:
        if self.mode == "serialization" and field["type"] != "typed-dict-field":
            return field.get("serialization_exclude_if") is None
        return super().field_is_required(field, *args, **named)

    def computed_field_schema(self, schema: Any) -> Schema:  # noqa: ARG002 - pydantic's
        raise PydanticOmit  # it is not stored

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - pydantic's
        return False  # a title made of the field's name says nothing new

    def decimal_schema(self, schema: Any) -> Schema:
        text: Schema = {"type": "string", "format": "decimal"}
        if self.mode == "serialization":
            return text
        limits = [each for each in super().decimal_schema(schema)["anyOf"] if "format" not in each]
        return {"anyOf": [*(each for each in limits if each["type"] == "number"), text]}


def schema_of(cls: type, *, writing: bool) -> Schema:
    return TypeAdapter(cls).json_schema(
        mode="serialization" if writing else "validation", schema_generator=_Generator
    )
