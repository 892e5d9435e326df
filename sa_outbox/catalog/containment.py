"""Whether whatever fits one schema fits another, and if not, where not.

Schemas are compared by their structure, as libraries write them. Two rules keep the answer honest:
what can't be judged counts as unfit (a keyword that is not known here), and fields that a class
does not declare may be there (an earlier release had them), but have no type.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from .alternatives import accepts, alternatives, phrase, resolved
from .dialect import ANNOTATIONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .dialect import Parts, Schema

Kind: TypeAlias = Literal["missing", "type", "value", "refused", "others", "limit", "unjudged"]

_LOWER: Final = ("minLength", "minItems", "minProperties")
_UPPER: Final = ("maxLength", "maxItems", "maxProperties")
_EQUAL: Final = ("format", "pattern", "contentEncoding", "contentMediaType", "multipleOf")
_KNOWN: Final = frozenset(
    {
        *ANNOTATIONS, *_LOWER, *_UPPER, *_EQUAL, "type", "enum", "properties", "required",
        "additionalProperties", "items", "additionalItems", "uniqueItems",
        "minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Misfit:
    """A place where something may be given that is not accepted."""

    path: str
    kind: Kind
    given: str = ""
    accepted: str = ""


class Comparison:
    """Between payloads as they are *given* and a schema that may not *accept* them all."""

    def __init__(self, given: Parts, accepted: Parts) -> None:
        self._given, self._accepted = given, accepted
        self._entered: set[tuple[str, int, int]] = set()

    def misfits(self, given: Schema, accepted: Schema, path: str = "$") -> list[Misfit]:
        """None: whatever fits *given* fits *accepted*."""
        given, accepted = resolved(given, self._given), resolved(accepted, self._accepted)
        with self._entering("node", given, accepted) as is_new:
            return list(self._found(given, accepted, path)) if is_new else []

    @contextmanager
    def _entering(self, what: str, given: Schema, accepted: Schema) -> Iterator[bool]:
        """False for two that are being compared already: a type has itself among its fields."""
        place = (what, id(given), id(accepted))
        is_new = place not in self._entered
        self._entered.add(place)
        try:
            yield is_new
        finally:
            if is_new:
                self._entered.discard(place)

    def _found(self, given: Schema, accepted: Schema, path: str) -> Iterator[Misfit]:
        options = alternatives(accepted, self._accepted)
        if any(not each.keys() - ANNOTATIONS for each in options):
            return
        for each in alternatives(given, self._given):
            if "enum" in each:
                yield from self._of_values(each["enum"], options, path)
            elif "type" not in each:
                yield Misfit(path, "type", phrase(each), phrase(accepted, self._accepted))
            else:
                yield from self._of_type(each, options, accepted, path)

    def _of_values(self, values: list[Any], options: list[Schema], path: str) -> Iterator[Misfit]:
        for value in values:
            if not any(accepts(each, value) for each in options):
                shown = phrase({"enum": [value]})
                yield Misfit(path, "value", shown, " or ".join(map(phrase, options)))

    def _of_type(
        self, given: Schema, options: list[Schema], accepted: Schema, path: str
    ) -> Iterable[Misfit]:
        alike = [each for each in options if _is_alike(given["type"], each)]
        if not alike:
            return [Misfit(path, "type", phrase(given), phrase(accepted, self._accepted))]
        return min((self._of_one(given, each, path) for each in alike), key=len)

    def _of_one(self, given: Schema, accepted: Schema, path: str) -> list[Misfit]:
        with self._entering("type", given, accepted) as is_new:
            return list(self._within(given, accepted, path)) if is_new else []

    def _within(self, given: Schema, accepted: Schema, path: str) -> Iterator[Misfit]:
        """Both have one type."""
        if "enum" in accepted:
            yield Misfit(path, "type", phrase(given), phrase(accepted))
            return
        yield from _limits(given, accepted, path)
        if given["type"] == "object":
            yield from self._of_objects(given, accepted, path)
        elif given["type"] == "array":
            yield from self._of_arrays(given, accepted, path)

    def _of_objects(self, given: Schema, accepted: Schema, path: str) -> Iterator[Misfit]:
        has, takes = given.get("properties", {}), accepted.get("properties", {})
        for name in accepted.get("required", ()):
            if name not in given.get("required", ()):
                may_be_there = name in has or isinstance(given.get("additionalProperties"), dict)
                kind = "may be missing" if may_be_there else "is missing"
                yield Misfit(f"{path}.{name}", "missing", kind)
        others = accepted.get("additionalProperties", True)
        if others is False and given.get("additionalProperties", True) is not False:
            yield Misfit(path, "others")
        for name, each in has.items():
            inside = f"{path}.{name}"
            if name in takes:
                yield from self.misfits(each, takes[name], inside)
            elif others is False:
                yield Misfit(inside, "refused", phrase(each, self._given))
            elif isinstance(others, dict):
                yield from self.misfits(each, others, inside)
        yield from self._of_maps(given, accepted, path)

    def _of_maps(self, given: Schema, accepted: Schema, path: str) -> Iterator[Misfit]:
        """Objects whose names are not known: ``dict[str, int]``."""
        values, others = given.get("additionalProperties"), accepted.get("additionalProperties")
        if isinstance(values, dict):
            for name, each in accepted.get("properties", {}).items():
                if name not in given.get("properties", {}):
                    yield from self.misfits(values, each, f"{path}.{name}")
            if isinstance(others, dict):
                yield from self.misfits(values, others, f"{path}.*")
        if isinstance(others, dict) and _is_open_map(given):
            yield from self.misfits({}, others, f"{path}.*")

    def _of_arrays(self, given: Schema, accepted: Schema, path: str) -> Iterator[Misfit]:
        has, rest = _items(given)
        takes, others = _items(accepted)
        for place in range(max(len(has), len(takes))):
            one = has[place] if place < len(has) else rest
            other = takes[place] if place < len(takes) else others
            yield from self._of_items(one, other, f"{path}[{place}]")
        yield from self._of_items(rest, others, f"{path}[]")

    def _of_items(self, given: Any, accepted: Any, path: str) -> Iterable[Misfit]:
        if given is False or accepted is True:  # there is none, or every one is fine
            return []
        if accepted is False:
            return [Misfit(path, "refused", "an item")]
        return self.misfits({} if given is True else given, accepted, path)


def _is_alike(kind: str, option: Schema) -> bool:
    other = option.get("type")
    if other is None and "enum" in option:
        return any(accepts({"type": kind}, each) for each in option["enum"])
    return other == kind or (kind, other) == ("integer", "number")


def _is_open_map(schema: Schema) -> bool:
    return not schema.get("properties") and schema.get("additionalProperties", True) in (True, {})


def _items(schema: Schema) -> tuple[list[Any], Any]:
    """Those with a place of their own, and all that follow."""
    items = schema.get("items", True)
    if isinstance(items, list):
        return items, schema.get("additionalItems", len(items) != schema.get("maxItems"))
    return [], items


def _limits(given: Schema, accepted: Schema, path: str) -> Iterator[Misfit]:
    for name in _LOWER:
        if given.get(name, 0) < accepted.get(name, 0):
            yield _limit(name, given, accepted, path)
    for name in _UPPER:
        if name in accepted and given.get(name, accepted[name] + 1) > accepted[name]:
            yield _limit(name, given, accepted, path)
    for name in _EQUAL:
        if name in accepted and given.get(name) != accepted[name]:
            yield _limit(name, given, accepted, path)
    yield from _bounds(given, accepted, path)
    for name in sorted(accepted.keys() - _KNOWN):
        if not name.startswith("x-") and given.get(name) != accepted[name]:
            yield Misfit(path, "unjudged", name)


def _bounds(given: Schema, accepted: Schema, path: str) -> Iterator[Misfit]:
    for sign, bound, beyond in (
        (1, "minimum", "exclusiveMinimum"),
        (-1, "maximum", "exclusiveMaximum"),
    ):
        inner = [sign * given[name] for name in (bound, beyond) if name in given]
        least = max(inner, default=None)
        if bound in accepted and (least is None or least < sign * accepted[bound]):
            yield _limit(bound, given, accepted, path)
        if beyond in accepted:
            limit = sign * accepted[beyond]
            is_beyond = beyond in given and sign * given[beyond] >= limit
            if not is_beyond and (least is None or least <= limit):
                yield _limit(beyond, given, accepted, path)


def _limit(name: str, given: Schema, accepted: Schema, path: str) -> Misfit:
    before = f"{name} {given[name]}" if name in given else f"no {name}"
    return Misfit(path, "limit", before, f"{name} {accepted[name]}")


def root_of(name: str, parts: Parts) -> Schema:
    return resolved(parts.get(name, {}), parts)
