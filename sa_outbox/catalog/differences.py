"""What is different between two schemas, whether it breaks anything or not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .alternatives import alternatives, phrase
from .dialect import ANNOTATIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .dialect import Parts, Schema


@dataclass(frozen=True, slots=True)
class Difference:
    path: str
    text: str


class Differences:
    def __init__(self, old: Parts, new: Parts) -> None:
        self._old, self._new = old, new
        self._compared: set[tuple[int, int]] = set()
        """Pairs that need no second look: a type may have itself among its fields."""

    def between(self, old: Schema, new: Schema, path: str = "$") -> Iterator[Difference]:
        olds, news = alternatives(old, self._old), alternatives(new, self._new)
        before, after = _only(olds), _only(news)
        if before is not None and after is not None:
            yield from self._of_kind(before, after, path)
        elif sorted(map(_outline, olds)) != sorted(map(_outline, news)):
            texts = phrase(old, self._old), phrase(new, self._new)
            changed = f"{texts[0]} is now {texts[1]}" if texts[0] != texts[1] else "it is different"
            yield Difference(path, changed)

    def _of_kind(self, old: Schema, new: Schema, path: str) -> Iterator[Difference]:
        if path != "$" and (id(old), id(new)) in self._compared:
            return
        self._compared.add((id(old), id(new)))
        if old.get("type") != new.get("type") or _outline(old) != _outline(new):
            texts = phrase(old), phrase(new)
            same = texts[0] == texts[1]
            yield Difference(path, _limits(old, new) if same else f"{texts[0]} is now {texts[1]}")
        before, after = old.get("properties", {}), new.get("properties", {})
        for name in sorted(before.keys() | after.keys()):
            inside = f"{path}.{name}"
            needed = name in new.get("required", ())
            if name not in before:
                yield Difference(inside, f"new, {'required' if needed else 'optional'}")
            elif name not in after:
                yield Difference(inside, "gone")
            else:
                if needed != (name in old.get("required", ())):
                    yield Difference(inside, f"now {'required' if needed else 'optional'}")
                yield from self.between(before[name], after[name], inside)
        for where, shown in (("items", "[]"), ("additionalProperties", ".*")):
            if isinstance(old.get(where), dict) and isinstance(new.get(where), dict):
                yield from self.between(old[where], new[where], path + shown)


def _only(options: list[Schema]) -> Schema | None:
    return options[0] if len(options) == 1 else None


def _outline(schema: Schema) -> str:
    """What a schema says besides its fields and items."""
    deeper = {"properties", "required"} | {
        each for each in ("items", "additionalProperties") if isinstance(schema.get(each), dict)
    }
    kept = {name: each for name, each in schema.items() if name not in ANNOTATIONS | deeper}
    kept |= {
        name: True for name in deeper & schema.keys() if name not in {"properties", "required"}
    }
    return repr(sorted(kept.items(), key=str))


def _limits(old: Schema, new: Schema) -> str:
    if old.get("additionalProperties") is False:
        return "other fields are allowed now"

    def shown(schema: Schema, name: str) -> Any:
        return schema.get(name, "none")

    names = sorted((old.keys() | new.keys()) - ANNOTATIONS - {"properties", "required", "items"})
    changed = [name for name in names if old.get(name) != new.get(name)]
    return ", ".join(f"{each} {shown(old, each)} is now {shown(new, each)}" for each in changed)
